"""The start offsets of leader epochs."""

from barnabas_broker.storage.epochs import LeaderEpochs


def test_epoch_end_offsets() -> None:
    epochs = LeaderEpochs([(2, 10), (4, 25)])
    assert epochs.end_offset(4, 40) == (4, 40)  # the latest ends with the log
    assert epochs.end_offset(2, 40) == (2, 25)
    assert epochs.end_offset(3, 40) == (2, 25)  # between two: the earlier one, and its end
    assert epochs.end_offset(1, 40) == (1, 10)  # before all: where the first one starts
    assert epochs.end_offset(5, 40) == (-1, -1)
    assert epochs.end_offset(-1, 40) == (-1, -1)
    assert LeaderEpochs().end_offset(0, 0) == (-1, -1)


def test_epochs_only_grow() -> None:
    epochs = LeaderEpochs()
    for epoch, offset in ((0, 0), (0, 5), (3, 7), (2, 9), (4, 7), (5, 12)):
        epochs.assign(epoch, offset)
    # Epoch 3 wrote nothing before 4 began at the same offset.
    assert epochs.entries() == [(0, 0), (4, 7), (5, 12)]
    assert epochs.dirty
    assert [epochs.epoch_for(offset) for offset in (0, 6, 7, 11, 12, 99)] == [0, 0, 4, 4, 5, 5]


def test_truncation_at_either_end() -> None:
    epochs = LeaderEpochs([(0, 0), (1, 10), (2, 20)])
    assert not epochs.dirty
    epochs.truncate_end(20)
    assert (epochs.entries(), epochs.latest, epochs.dirty) == ([(0, 0), (1, 10)], 1, True)
    epochs.truncate_start(15)
    assert epochs.entries() == [(1, 15)]
    epochs.truncate_start(3)
    assert epochs.entries() == [(1, 15)]
    assert epochs.epoch_for(14) == -1
    epochs.truncate_end(0)
    assert (epochs.entries(), epochs.latest) == ([], -1)
