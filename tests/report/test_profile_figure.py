"""The figure of a profile: three panels that hold the data and the fitted curves."""

import numpy as np
import pytest

from cutwater.base.errors import CutwaterError
from cutwater.profile.count import profile_model
from cutwater.profile.fit import fit
from cutwater.profile.values import worth_choosing
from cutwater.report.drawings import draw_profile
from cutwater.report.figures import save_figure


@pytest.fixture(scope="module")
def profile():
    return profile_model("cnn")


def test_each_panel_shows_every_cut_the_curve_and_the_marked_cuts(profile):
    fitted = fit(profile)
    panels = draw_profile(profile, fitted).axes
    flops = profile.column("client_forward_flops") + profile.column("client_backward_flops")
    true = (profile.column("client_bits") / 8e6, flops / 1e6, profile.column("smashed_bits") / 8e3)
    fits = (
        lambda cuts: fitted.client_bits(cuts) / 8e6,
        lambda cuts: fitted.client_flops(cuts) / 1e6,
        lambda cuts: fitted.smashed_bits(cuts) / 8e3,
    )
    assert len(panels) == 3
    for axes, data, curve in zip(panels, true, fits, strict=True):
        points, line, marked = axes.get_lines()
        assert np.array_equal(points.get_xdata(), np.arange(1, 7))
        assert np.allclose(points.get_ydata(), data)
        assert np.allclose(line.get_ydata(), curve(line.get_xdata()))
        assert tuple(marked.get_xdata()) == worth_choosing(profile)


def test_an_unknown_ending_is_refused_before_anything_is_written(profile, tmp_path):
    with pytest.raises(CutwaterError, match=r"end it in \.pdf, \.png, \.svg"):
        save_figure(draw_profile(profile, fit(profile)), tmp_path / "figure")
    assert not list(tmp_path.iterdir())
