"""What the models of all sections share: types of numbers and names, and how a section is written as JSON."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MAX_RATES = 50

Value = TypeVar("Value")


def _check_rate(name: str) -> str:
    try:
        valid = 0 < float(name) <= 1
    except ValueError:
        valid = False
    if not valid:
        raise ValueError("it is not a rate above 0 and at most 1, such as '0.001'")
    return name


Count = Annotated[int, Field(ge=0)]
# The first and the last of a 95% interval. JSON has arrays where Python has tuples, hence not strict.
Interval = Annotated[tuple[float, float], Field(strict=False)]
Numbers = Annotated[list[float], Field(fail_fast=True)]
# A rate as a key: "0.001", "1e-06".
RateName = Annotated[str, AfterValidator(_check_rate)]
ByScore = dict[str, Value]
ByRate = Annotated[dict[RateName, Value], Field(max_length=MAX_RATES)]


class ResultPart(BaseModel):
    """Part of a result or of a comparison."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, populate_by_name=True)

    def to_json(self) -> dict[str, Any]:
        """As the file has it: the keys that were set, whether by whoever measured or by the file that was read."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


def check_lengths(**lists: list[Any]) -> None:
    """Refuse lists that belong together and differ in length; pydantic makes a ``ValidationError`` of the error."""
    if len({len(values) for values in lists.values()}) > 1:
        raise ValueError(f"{', '.join(lists)} are not of one length")
