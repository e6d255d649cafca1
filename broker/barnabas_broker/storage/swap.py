"""Cleaned segments take the place of those that they were made of, in an instant for readers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas_broker.storage import names
from barnabas_broker.storage.segment import Segment

if TYPE_CHECKING:
    from barnabas_broker.storage.log import Log


def swap_in(owner: "Log", old: Sequence[Segment], groups: Sequence[tuple[Sequence[int], int]]) -> bool:
    """See :meth:`Log.end_swap`."""
    owner.swapping = False
    files = owner.disk.files
    try:
        fits = owner.disk.failure is None and owner.segments.starts_with(old)
        known = {segment.base_offset: segment for segment in old}
        for bases, base in groups:
            if fits:
                replaced = [known[each] for each in bases]
                owner.discard_files(replaced, replaced[0].created_ms)
            for suffix in names.SEGMENT_FILES:
                path = names.offset_path(owner.path, base, suffix)
                swap = path.with_name(path.name + names.SWAP)
                if fits and files.exists(swap):
                    files.rename(swap, path)
                elif not fits:
                    files.remove(swap)
            if fits:
                new = Segment(files, owner.path, base, replaced[0].created_ms)
                new.load()
                new.trust(0, new.size)
                new.close()
                owner.segments.replace(replaced, [new])
    except OSError as error:
        owner.disk.fail(f"compaction of {owner.topic_partition}", error)
        return False
    return fits
