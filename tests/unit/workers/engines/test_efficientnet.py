from pathlib import Path

import numpy as np
import pytest
import torch

from infra.model_files import ModelMissing
from workers.engines import efficientnet
from workers.engines.efficientnet import CLASSES, Labeller, Network, filled


@pytest.fixture(scope="module")
def network() -> Network:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return Network()


def published(network: Network) -> dict[str, torch.Tensor]:
    """The network's tensors under other names, which end alike: what a checkpoint looks like."""
    return {
        f"their{place}.{name.rpartition('.')[2]}": one for place, (name, one) in enumerate(network.state_dict().items())
    }


def test_it_has_the_tensors_of_the_published_checkpoint(network: Network) -> None:
    state = network.state_dict()
    assert len(state) == 296
    assert sum(one.numel() for one in network.parameters()) == 4_652_008
    assert list(state.values())[-2].shape == (CLASSES, 1280)


def test_a_checkpoint_with_other_names_is_taken_in_order(network: Network) -> None:
    other = filled(Network(), published(network))
    assert all(
        torch.equal(a, b)
        for a, b in zip(network.double().state_dict().values(), other.state_dict().values(), strict=True)
    )


def test_a_checkpoint_of_another_shape_is_refused(network: Network) -> None:
    theirs = published(network)
    name = next(iter(theirs))
    with pytest.raises(ModelMissing, match=r"has shape \[1\].* needs \[32, 3, 3, 3\]"):
        filled(Network(), theirs | {name: torch.zeros(1)})
    theirs.pop(name)
    with pytest.raises(ModelMissing, match="has 295 tensors"):
        filled(Network(), theirs)


def test_the_batch_changes_no_label_and_no_share_that_is_shown(network: Network) -> None:
    labeller = Labeller(filled(Network(), published(network)), [str(place) for place in range(CLASSES)])
    random = np.random.default_rng(0)
    pictures = [random.integers(0, 256, size, dtype=np.uint8) for size in ((40, 60, 3), (300, 20, 3), (224, 224, 3))]
    together = labeller.label(pictures, 3)
    for picture, seen in zip(pictures, together, strict=True):
        (alone,) = labeller.label([picture], 3)
        assert [one.name for one in alone] == [one.name for one in seen]
        assert [one.share for one in alone] == pytest.approx([one.share for one in seen], abs=1e-12)
    assert labeller.label([], 3) == []


def test_names_are_the_first_word_of_each_class(tmp_path: Path) -> None:
    (tmp_path / efficientnet.SYNSETS_FILE).write_text("\n".join(f"n{place}" for place in range(CLASSES)))
    words = "\n".join(f"n{place}\tthing {place}, object" for place in reversed(range(CLASSES)))
    (tmp_path / efficientnet.WORDS_FILE).write_text(words)
    assert efficientnet.names(tmp_path)[7] == "thing 7"
    (tmp_path / efficientnet.SYNSETS_FILE).write_text("n1\nn2")
    with pytest.raises(ModelMissing, match="names 2 classes, not 1000"):
        efficientnet.names(tmp_path)


def test_a_missing_checkpoint_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match=r"efficientnet-lite0\.pth.*triptych models pull"):
        Labeller.load(tmp_path)
