"""The GPU table and the measured shares of its peaks."""

import pytest

from holotron.plan.efficiency import Efficiency
from holotron.plan.errors import PlanError
from holotron.plan.gpus import GPUS, MIB, gpu, known_gpu


def test_known_cards():
    h100, h200 = gpu("H100"), gpu("H200")
    assert (h100.bandwidth, h100.bf16_flops, h100.fp8_flops) == (3.35e12, 989e12, 1979e12)
    assert (h200.bandwidth, h200.bf16_flops, h200.fp8_flops) == (4.8e12, 989e12, 1979e12)
    assert {
        "H100-PCIE",
        "B200",
        "GH200",
        "A100-40GB",
        "A100-80GB",
        "L40S",
        "L4",
        "A10G",
        "RTX-4090",
        "RTX-5090",
    } <= set(GPUS)
    assert gpu("A100-80GB").fp8_flops is None


@pytest.mark.parametrize("spelling", ["h200", "H200", " h200 "])
def test_names_in_any_case(spelling):
    assert gpu(spelling) is GPUS["H200"]


@pytest.mark.parametrize("spelling", ["rtx-4090", "RTX 4090", "rtx_4090"])
def test_names_with_any_separator(spelling):
    assert gpu(spelling) is GPUS["RTX-4090"]


@pytest.mark.parametrize("name", ["", "H300", "H100-SXM", "RTX"])
def test_unknown_name_lists_the_known(name):
    with pytest.raises(PlanError, match=r"A100-40GB.*RTX-5090") as caught:
        gpu(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("card", GPUS.values(), ids=lambda card: card.name)
def test_figures_are_plausible(card):
    assert 20_000 * MIB < card.memory_bytes < 200_000 * MIB
    assert 0.2e12 < card.bandwidth < 10e12
    assert card.fp8_flops is None or 1.9 < card.fp8_flops / card.bf16_flops < 2.1
    assert card.host_bandwidth < card.bandwidth


def test_measured_host_link():
    assert gpu("H200").host_bandwidth * Efficiency().host_link == pytest.approx(55e9, rel=0.01)


def test_shares_must_be_positive():
    with pytest.raises(PlanError, match=r"vision is 0\.0"):
        Efficiency(vision=0.0)


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100-PCIE"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA L40S", "L40S"),
    ],
)
def test_the_names_that_drivers_give(told: str, name: str) -> None:
    assert known_gpu(told) is GPUS[name]


def test_a_gpu_that_is_not_known_is_taken_for_none_like_it() -> None:
    assert known_gpu("NVIDIA L40") is None
