"""Whole numbers as people write them: `--total-steps 1e6`."""

import math

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo


def whole_numbers() -> ConstructorRegistry:
    """A context in which all commands read 1e6, 2.5e5 and 1_000_000 where a whole number is asked for."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
        if info.type is not int:
            return None
        return PrimitiveConstructorSpec(
            nargs=1,
            metavar="INT",
            instance_from_str=lambda texts: whole_number(texts[0]),
            is_instance=lambda value: isinstance(value, int),
            str_from_instance=lambda value: [str(value)],
        )

    return registry


def whole_number(text: str) -> int:
    """`1e6` to 1000000; ValueError for what is no whole number. Integers of any length stay exact."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not number.is_integer():  # NaN and infinity are none either
        raise ValueError(f"{text!r} is no whole number, such as 1000 or 1e3")
    return int(number)
