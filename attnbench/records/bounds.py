"""What `msgspec.convert` accepts of numbers and names: bounds beyond any machine, with finite
products."""

from collections.abc import Mapping
from sys import float_info
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta

COUNTABLE = 1 << 53  # of anything counted: up to here every whole number is a float
LONGEST_S = 1e13  # more than any option can say

# bytes of one number
ITEM_BYTES: Mapping[str, int] = MappingProxyType(
    {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
)

# abbreviations that users may write; records hold the full names
SHORT_DTYPES: Mapping[str, str] = MappingProxyType(
    {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp64": "float64"}
)

Size = Annotated[int, Meta(ge=1, le=1 << 40)]
Many = Annotated[int, Meta(ge=1, le=COUNTABLE)]
Count = Annotated[int, Meta(ge=0, le=COUNTABLE)]
Work = Annotated[int, Meta(ge=0)]  # of any case that may be requested, even if it cannot run
Number = Annotated[float, Meta(ge=-1e100, le=1e100)]
Amount = Annotated[float, Meta(ge=0, le=1e100)]
Seconds = Annotated[float, Meta(ge=0, le=LONGEST_S)]
Duration = Annotated[float, Meta(ge=1e-12, le=LONGEST_S)]  # of something that happened
Load = Annotated[float, Meta(ge=0, le=1e6)]  # in cores
Share = Annotated[float, Meta(ge=0, le=1)]
Year = Annotated[int, Meta(ge=1900, le=2100)]
Dtype = Annotated[str, Meta(pattern=f"^({'|'.join(ITEM_BYTES)})$")]
Finite = Annotated[float, Meta(ge=-float_info.max, le=float_info.max)]
Option = str | int | Finite | bool | None
