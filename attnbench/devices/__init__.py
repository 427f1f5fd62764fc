"""What differs between devices: how they are found, timed, weighed, and what disturbs them."""

from attnbench.devices.out_of_memory import DeviceFailed as DeviceFailed
from attnbench.devices.out_of_memory import is_out_of_memory as is_out_of_memory
from attnbench.devices.out_of_memory import raise_device_failure as raise_device_failure
