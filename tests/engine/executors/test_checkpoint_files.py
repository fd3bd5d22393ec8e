"""A checkpoint that travels in parts is the same where it arrives, and what it no longer names is removed there too."""

from pathlib import Path

import torch

from shunter.engine.checkpoint.checkpoint_settings import CheckpointSettings
from shunter.engine.checkpoint.directory import CheckpointDirectory
from shunter.engine.executors.checkpoint_files import CheckpointWatch, read_checkpoint, write_checkpoint
from tests.extensions.incremental_checkpoints.test_changing_tables import fresh, tables_of, touch


def test_only_what_is_new_is_sent_and_all_arrives(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    checkpoint_settings = CheckpointSettings(bits=8, rows="consecutive")
    model, optimizer = fresh(0)
    kept = CheckpointDirectory(there, {}, checkpoint_settings)
    kept.follow(model)
    watch = CheckpointWatch(there)
    assert watch.changed() is None
    sent: list[str] = []
    for step in range(4):
        touch(model, kept, [(step, step)])
        kept.write(model, optimizer, {"step": step})
        kept.finish()
        files = watch.changed()
        assert files is not None
        parts = [name for name in files if name.endswith(".safetensors")]
        assert not set(parts) & set(sent)
        sent += parts
        write_checkpoint(files, here)
        assert sorted(path.name for path in here.iterdir()) == sorted(path.name for path in there.iterdir())
    tables = []
    for folder in (there, here):
        model, optimizer = fresh(1)
        again = CheckpointDirectory(folder, {}, checkpoint_settings)
        again.follow(model)
        assert again.read(model, optimizer)["step"] == 3
        tables.append(tables_of(model))
    assert all(map(torch.equal, *tables))
    assert set(read_checkpoint(there)) == {path.name for path in there.iterdir()}
