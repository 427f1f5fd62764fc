"""What differs between devices: how they are found, timed, weighed, and what disturbs them."""
