"""What the numbers of a sweep mean, and what others will be; it loads no torch."""
