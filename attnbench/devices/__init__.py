"""What differs between devices: how they are found, timed, weighed, and what disturbs them."""

from attnbench.devices.finding import AUTO as AUTO
from attnbench.devices.finding import choose as choose
from attnbench.devices.finding import find as find
from attnbench.devices.out_of_memory import DeviceFailed as DeviceFailed
from attnbench.devices.out_of_memory import is_out_of_memory as is_out_of_memory
from attnbench.devices.out_of_memory import raise_device_failure as raise_device_failure
from attnbench.devices.system import SYSTEM as SYSTEM
from attnbench.devices.system import System as System
