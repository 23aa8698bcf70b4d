"""How Parquet files are laid out, as the user writes it down: row groups, pages, dictionaries, Bloom filters, order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from poundlock.arguments import FLAG, WHOLE, check_kind
from poundlock.errors import DefinitionError
from poundlock.values import size

__all__ = ["BloomFilter", "ParquetOptions"]


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A Bloom filter of a column, in each row group.

    Args:
        distinct: how many different values a row group has at most.
        false_positives: share of values that are not there and pass all the same, between 0 and 1.

    Raises:
        DefinitionError: one of them cannot be.
    """

    distinct: int = 1_048_576
    false_positives: float = 0.05

    def __post_init__(self) -> None:
        check_kind("BloomFilter", WHOLE, {"distinct": self.distinct})
        share = self.false_positives
        if self.distinct < 1 or not isinstance(share, float | int) or not 0 < share < 1:
            raise DefinitionError(
                f"{self} is no Bloom filter", next="write such as BloomFilter(distinct=100_000, false_positives=0.01)"
            )


@dataclass(frozen=True, kw_only=True)
class ParquetOptions:
    """How the Parquet files of a sink are laid out.

    Args:
        row_group_size: a row group is written when so much of Arrow's memory has gathered, such as "16 MB".
        row_group_rows: and when so many rows have; None = by size alone.
        page_size: of data pages before compression, such as "1 MB".
        dictionary: whether columns are encoded with dictionaries: all, none, or those that are named.
        dictionary_page_size: a column goes on without a dictionary that is larger than this.
        bloom_filters: columns with a filter: `{"user_id": BloomFilter(distinct=100_000)}`.
        sort_by: rows are sorted by these columns within each row group, "-name" falling; nulls come last. Files say so in their metadata.
        page_index: whether files have an index of their pages, by which readers leave pages out.
        compression_level: of the codec; None = its usual one.

    Raises:
        DefinitionError: one of them cannot be.
    """

    row_group_size: str | int = "16 MB"
    row_group_rows: int | None = None
    page_size: str | int = "1 MB"
    dictionary: bool | Sequence[str] = True
    dictionary_page_size: str | int = "1 MB"
    bloom_filters: Mapping[str, BloomFilter] = field(default_factory=dict)
    sort_by: Sequence[str] = ()
    page_index: bool = False
    compression_level: int | None = None

    def __post_init__(self) -> None:
        for name in ("row_group_size", "page_size", "dictionary_page_size"):
            given = size(getattr(self, name))
            if given < 1:
                raise DefinitionError(f"ParquetOptions {name} is zero", next=f'write such as {name}="1 MB"')
            object.__setattr__(self, name, given)
        check_kind("ParquetOptions", FLAG, {"page_index": self.page_index})
        numbers = {"row_group_rows": self.row_group_rows, "compression_level": self.compression_level}
        check_kind("ParquetOptions", WHOLE, numbers, optional=True)
        if self.row_group_rows is not None and self.row_group_rows < 1:
            raise DefinitionError(
                f"ParquetOptions row_group_rows={self.row_group_rows} is none", next="write such as 100_000"
            )
        if isinstance(self.sort_by, str) or isinstance(self.dictionary, str):
            raise DefinitionError(
                "ParquetOptions: columns are given as one text", next='write a list, such as ["user"]'
            )
        object.__setattr__(self, "sort_by", tuple(self.sort_by))
        if not isinstance(self.dictionary, bool):
            object.__setattr__(self, "dictionary", tuple(self.dictionary))
        wrong = [name for name, each in self.bloom_filters.items() if not isinstance(each, BloomFilter)]
        if wrong:
            raise DefinitionError(
                f"the Bloom filter of {wrong[0]!r} is none", next="write bloom_filters={name: BloomFilter()}"
            )

    @property
    def order(self) -> list[tuple[str, str]]:
        """The columns of `sort_by` with "ascending" or "descending"."""
        return [
            (name.removeprefix("-"), "descending" if name.startswith("-") else "ascending") for name in self.sort_by
        ]

    @property
    def columns(self) -> set[str]:
        """The columns that it names."""
        listed = () if isinstance(self.dictionary, bool) else self.dictionary
        return {*listed, *self.bloom_filters, *(name for name, _ in self.order)}

    def check_columns(self, names: Sequence[str]) -> None:
        """Raise DefinitionError unless files with these columns have all that it names. Fields of structs are written with dots."""
        missing = sorted(name for name in self.columns if name not in names and name.partition(".")[0] not in names)
        if missing:
            raise DefinitionError(
                f"ParquetOptions name the column {missing[0]!r}, which is not among {list(names)}",
                next="change the name, or have the column written",
            )

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        filters = {name: [each.distinct, each.false_positives] for name, each in self.bloom_filters.items()}
        plain = {name: getattr(self, name) for name in _PLAIN}
        listed = self.dictionary if isinstance(self.dictionary, bool) else list(self.dictionary)
        return {**plain, "dictionary": listed, "sort_by": list(self.sort_by), "bloom_filters": filters}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ParquetOptions:
        """Return it from a JSON object."""
        filters = {name: BloomFilter(*each) for name, each in value["bloom_filters"].items()}
        return cls(**{**value, "bloom_filters": filters})


_PLAIN = (
    "row_group_size",
    "row_group_rows",
    "page_size",
    "dictionary_page_size",
    "page_index",
    "compression_level",
)
