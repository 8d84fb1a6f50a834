"""Checkpoints with matrices in 8 or 12 bits: smaller, within half a step of what they were, and checked when read."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from holotron.cli.train import app
from holotron.model.checkpoint import int8
from holotron.model.checkpoint.reader import load_checkpoint
from holotron.model.checkpoint.writer import save_checkpoint
from holotron.model.errors import CheckpointError
from holotron.model.loading import find_checkpoint

from .tiny import tiny_model

FILE = "model.safetensors"


def wide_model(dtype=torch.float32):
    return tiny_model("M-*", dtype=dtype, hidden_size=128)


def restored(parts):
    numbers = parts[""] if int8.REST not in parts else int8.with_rest(parts[""], parts[int8.REST])
    return int8.unpack(numbers, parts[int8.SUFFIX])


# A 16-bit scale may be rounded down, so that the largest number of a group is cut off at 127: another 127 · 2⁻¹¹ in 8
# bits. In 12 there is room above it.
@pytest.mark.parametrize(("bits", "step"), [(8, 0.5 + int8.LIMIT * 2.0**-11), (12, 1 / 16)])
def test_a_matrix_comes_back_within_a_step(bits, step):
    matrix = torch.randn(37, 256, generator=torch.Generator().manual_seed(1)) * torch.logspace(-3, 2, 37)[:, None]
    parts = int8.pack(matrix, bits)
    assert [part.dtype for part in parts.values()] == [torch.int8, torch.float16, torch.uint8][: len(parts)]
    assert parts[int8.SUFFIX].shape == (37, 4)
    error = (restored(parts) - matrix).abs().unflatten(1, (-1, int8.GROUP)).amax(-1)
    assert (error <= parts[int8.SUFFIX].float() * step).all()
    assert sum(part.nbytes for part in parts.values()) == matrix.numel() * (bits + 16 / int8.GROUP) / 8


@pytest.mark.parametrize("bits", int8.BITS)
def test_zeros_and_matrices_packed_in_8_bits_are_kept_exactly(bits):
    zeros = torch.zeros(2, int8.GROUP)
    assert torch.equal(restored(int8.pack(zeros, bits)), zeros)
    once = restored(int8.pack(torch.randn(8, 2 * int8.GROUP)))
    assert torch.equal(restored(int8.pack(once, bits)), once)


def test_12_bits_keep_a_change_that_8_bits_round_away():
    before = restored(int8.pack(torch.randn(64, 256, generator=torch.Generator().manual_seed(2)), 8))
    change = torch.randn(64, 256, generator=torch.Generator().manual_seed(3)) * 0.1 * before.abs().amax() / int8.LIMIT
    kept = {bits: restored(int8.pack(before + change, bits)) - before for bits in int8.BITS}
    lost = {bits: float((kept[bits] - change).norm() / change.norm()) for bits in int8.BITS}
    assert lost[8] > 0.9
    assert lost[12] < 0.5


@pytest.mark.parametrize(
    ("dtype", "bits", "share", "error"),
    [(torch.float32, 8, 0.5, 0.01), (torch.bfloat16, 8, 0.8, 0.01), (torch.float32, 12, 0.6, 0.001)],
)
def test_a_model_is_written_in_fewer_bits_and_read_back(tmp_path, dtype, bits, share, error):
    model = wide_model(dtype)
    save_checkpoint(model, tmp_path / "whole")
    save_checkpoint(model, tmp_path / "packed", bits=bits)
    sizes = [(tmp_path / name / FILE).stat().st_size for name in ("whole", "packed")]
    assert sizes[1] < sizes[0] * share
    read = load_checkpoint(tmp_path / "packed")
    assert read.dtype == dtype
    packed = load_file(tmp_path / "packed" / FILE)
    assert sum(tensor.dtype == torch.int8 for tensor in packed.values()) >= 5
    for (name, before), (_, after) in zip(model.named_parameters(), read.named_parameters(), strict=True):
        if int8.is_packable(before):
            assert (before - after).norm() <= error * before.norm(), name
        else:
            assert torch.equal(before, after), name
    # What was read is written whole again, and is the same model.
    save_checkpoint(read, tmp_path / "again")
    for (name, before), (_, after) in zip(
        read.named_parameters(), load_checkpoint(tmp_path / "again").named_parameters(), strict=True
    ):
        assert torch.equal(before, after), name


@pytest.mark.parametrize("bits", int8.BITS)
def test_several_files_keep_scales_beside_their_matrices(tmp_path, bits):
    model = wide_model()
    save_checkpoint(model, tmp_path / "one", bits=bits)
    save_checkpoint(model, tmp_path / "many", bits=bits, max_shard_bytes=20_000)
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    pairs = zip(
        load_checkpoint(tmp_path / "one").parameters(), load_checkpoint(tmp_path / "many").parameters(), strict=True
    )
    assert all(torch.equal(one, other) for one, other in pairs)


def test_a_wrong_scale_is_named(tmp_path):
    save_checkpoint(wide_model(), tmp_path / "packed", bits=8)
    path = tmp_path / "packed" / FILE
    tensors = load_file(path)
    name = next(name for name, tensor in tensors.items() if tensor.dtype == torch.int8)
    scale = tensors[name + int8.SUFFIX]
    save_file(tensors | {name + int8.SUFFIX: scale[:, :1].float().contiguous()}, path)
    with pytest.raises(CheckpointError, match=rf"{name} is stored in 8 bits, and {name}\.scale is F32"):
        load_checkpoint(tmp_path / "packed")
    del tensors[name + int8.SUFFIX]
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=f"{name} is stored as I8"):
        load_checkpoint(tmp_path / "packed")


def test_a_wrong_rest_is_named(tmp_path):
    save_checkpoint(wide_model(), tmp_path / "packed", bits=12)
    path = tmp_path / "packed" / FILE
    tensors = load_file(path)
    rest = next(name for name in tensors if name.endswith(int8.REST))
    save_file(tensors | {rest: tensors[rest][:, :1].contiguous()}, path)
    with pytest.raises(CheckpointError, match=rf"{rest} is U8 \[\d+, 1\].*it must be U8"):
        load_checkpoint(tmp_path / "packed")


def test_other_widths_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be stored in 4 bits"):
        save_checkpoint(wide_model(), tmp_path / "packed", bits=4)
    assert not (tmp_path / "packed").exists()


def test_the_bundled_policy_fits_its_budget():
    size = (find_checkpoint("holotron-nano") / FILE).stat().st_size
    assert size <= 48_000_000


@pytest.mark.parametrize(("words", "rests"), [([], False), (["--bits", "12"], True)])
def test_the_command_packs_a_checkpoint(tmp_path, words, rests):
    save_checkpoint(wide_model(), tmp_path / "whole")
    ran = CliRunner().invoke(app, ["pack", str(tmp_path / "whole"), "--out", str(tmp_path / "packed"), *words])
    assert ran.exit_code == 0, ran.output
    packed = load_file(tmp_path / "packed" / FILE)
    assert any(tensor.dtype == torch.int8 for tensor in packed.values())
    assert any(tensor.dtype == torch.uint8 for tensor in packed.values()) == rests
