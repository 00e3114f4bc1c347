"""EID: the clean set of all unlabeled domains and its mix with the labeled one."""

import pytest
import torch
from recording import LABELED, TASK, Recorder, images_of

from ssdg.data.sets import MixedSet
from ssdg.methods.api import argmax_rule
from ssdg.methods.eid.bridge import evolve, first_source
from ssdg.methods.eid.settings import EidSettings

FIRST = [[0.9, 0.05, 0.05], [0.6, 0.2, 0.2], [0.1, 0.8, 0.1], [0.2, 0.1, 0.7]]
FIRST += [[0.1, 0.1, 0.8], [0.5, 0.3, 0.2], [0.3, 0.4, 0.3]]
SECOND = [[0.5, 0.25, 0.25], [0.8, 0.1, 0.1], [0.1, 0.2, 0.7], [0.1, 0.1, 0.8]]
SECOND += [[0.2, 0.2, 0.6], [0.4, 0.4 - 1e-6, 0.2], [0.1, 0.8, 0.1]]
# joint probability of the agreed class: .45, .48, none (1 against 2), .56, .48, .20, .32
LOGITS = torch.tensor([FIRST, SECOND]).log()


def clean(**settings):
    recorder = Recorder(lambda *_: LOGITS)
    source = evolve(TASK, recorder, "dual", EidSettings(**settings), cycle=2)
    return recorder, source


def test_the_pool_is_all_unlabeled_domains_and_the_dual_networks_label_it():
    recorder, _ = clean()
    ((verb, key, cycle, learner, args),) = recorder.calls
    assert (verb, key, cycle, learner) == ("label", "eid", 2, "dual")
    assert images_of(args["pool"]) == [50, 51, 52, 53, 60, 61, 62]


def test_the_clean_set_is_what_both_agree_on_with_small_loss():
    _, source = clean()
    assert isinstance(source, MixedSet)
    assert source.base is LABELED
    # 0.4 of 6 agreed images, at least: three, across the domains; 1 and 4 tie at .48 and both are in
    assert images_of(source.clean) == [51, 53, 60]
    assert source.clean.y.tolist() == [0, 2, 2]
    assert source.clean.domain.tolist() == [1, 1, 2]
    assert not source.clean.trusted.any()


@pytest.mark.parametrize(
    ("settings", "images"),
    [
        ({"clean_rate": 1.0}, [50, 51, 53, 60, 61, 62]),
        ({"clean_rate": 0.1}, [53]),
        ({"first_only": True}, [50, 53, 60]),  # .9, .8 and .7 of network 1
        ({"clean_choice": "per-class", "clean_rate": 0.3}, [51, 53, 62]),  # one of each class
    ],
)
def test_settings_of_the_choice(settings, images):
    assert images_of(clean(**settings)[1].clean) == images


def test_settings_of_the_mix():
    _, source = clean()
    assert (source.mix, source.alpha, source.any_pair) == ("mixup", 1.0, False)
    _, source = clean(mix="cutmix", mix_alpha=0.3, any_pair=True)
    assert (source.mix, source.alpha, source.any_pair) == ("cutmix", 0.3, True)


def test_the_first_source_is_the_labeled_domain():
    assert first_source(TASK, EidSettings()) is LABELED
    mixed = first_source(TASK, EidSettings(any_pair=True))
    assert (mixed.base, len(mixed.clean), len(mixed)) == (LABELED, 0, 3)


def test_apl_takes_the_class_of_highest_mean_probability_and_keeps_all():
    for logits in (LOGITS, LOGITS.flip(0)):  # no network is the first
        y, keep = argmax_rule(logits)
        # image 2: (.1, .5, .4) on average, though the networks disagree
        assert y.tolist() == [0, 0, 1, 2, 2, 0, 1]
        assert keep.all()
