import numpy as np
import pytest

from vitlab import UserError, crossover, fit_scaling_law
from vitlab.studies.laws.crossover import describe_crossover, find_crossover
from vitlab.studies.laws.forms import FORMS, Curve

SIZES = np.geomspace(250, 32_000, 8)


def measure(law, noise=0.03, seeds=3, shared=(), start=0, sizes=SIZES):
    """Sizes and errors of runs of a law; `shared` is noise that another model has too."""
    rng = np.random.default_rng(start)
    x = np.repeat(sizes, seeds)
    return x, law(x) * np.exp(noise * rng.normal(size=len(x)) + (shared if len(shared) else 0))


@pytest.mark.parametrize("name", FORMS)
def test_the_derivatives_of_a_law_are_those_of_its_values(name):
    sizes = np.log(SIZES)
    form = FORMS[name](Curve(sizes, np.log(0.05 + 3 * np.exp(-0.4 * sizes)), None))
    low, high = form.bounds
    theta = np.clip(np.array(list(form.starts())), np.maximum(low, -1e9) + 0.1, np.minimum(high, 1e9) - 0.01)
    _, derivatives = form.evaluate(theta, sizes)
    for column, derivative in enumerate(derivatives):
        step = 1e-5 * np.eye(theta.shape[1])[column]
        measured = (form.evaluate(theta + step, sizes)[0] - form.evaluate(theta - step, sizes)[0]) / 2e-5
        np.testing.assert_allclose(derivative, measured, atol=1e-5)


@pytest.mark.parametrize(
    ("law", "planted", "error"),
    [
        ("m1", {"b": 3, "c": -0.3}, lambda x: 3 * x**-0.3),
        ("m2", {"e_inf": 0.04, "b": 5, "c": -0.5}, lambda x: 0.04 + 5 * x**-0.5),
        ("m3", {"b": 4, "g": 1e-4, "c": 0.4}, lambda x: 4 * (1 / x + 1e-4) ** 0.4),
    ],
)
def test_planted_parameters_are_found(law, planted, error):
    exact = fit_scaling_law(SIZES, error(SIZES), law)
    assert exact.params == pytest.approx(planted, rel=1e-3)
    noisy = fit_scaling_law(*measure(error), law)
    for name, (low, high) in noisy.param_intervals(0.999).items():
        assert low <= planted[name] <= high
    assert noisy.measured_by == "seeds resampled"


def test_m4_predicts_from_chance_down_to_its_limit():
    from scipy.optimize import brentq

    def error(sizes):
        planted = lambda e, x: np.log(e - 0.03) - 1.5 * np.log(0.9 - e) - np.log(200) + 0.9 * np.log(x)  # noqa: E731
        return np.array([brentq(planted, 0.03 + 1e-12, 0.9 - 1e-12, args=(x,)) for x in sizes])

    fit = fit_scaling_law(SIZES, error(SIZES), "m4", chance=0.9)
    assert fit.params["e_0"] == 0.9
    np.testing.assert_allclose(fit.predict([10, 1e5, 1e6]), error([10, 1e5, 1e6]), rtol=0.01)
    assert fit.rmse_holdout < 0.01


def test_the_law_is_chosen_by_what_it_predicts():
    assert fit_scaling_law(*measure(lambda x: 3 * x**-0.3)).law == "m1"
    bent = fit_scaling_law(*measure(lambda x: 0.1 + 30 * x**-0.7))
    straight = fit_scaling_law(*measure(lambda x: 0.1 + 30 * x**-0.7), "m1")
    assert bent.law != "m1"
    assert bent.rmse_holdout < straight.rmse_holdout / 2


def test_intervals_of_one_run_hold_those_of_the_curve():
    fit = fit_scaling_law(*measure(lambda x: 3 * x**-0.3, noise=0.1), "m1")
    low, high = fit.interval([1e3, 1e5])
    lowest, highest = fit.prediction_interval([1e3, 1e5])
    assert (lowest < low).all()
    assert (high < highest).all()
    assert high[1] / low[1] > high[0] / low[0]  # less is known beyond the data
    assert fit_scaling_law(SIZES, 3 * SIZES**-0.3 * np.linspace(1, 1.1, 8), "m1").measured_by.endswith("one seed")


def test_a_curve_that_jumps_has_no_law():
    fit = fit_scaling_law(*measure(lambda x: np.where(x < 8_000, 0.8, 0.03)))
    assert not fit.holds
    steady = fit_scaling_law(*measure(lambda x: 0.5 * x**-0.1))
    found = find_crossover(fit, steady)
    assert found.inside  # the data tell of themselves


@pytest.mark.parametrize(("size", "inside"), [(6_000, True), (50_000, False)])
def test_a_planted_crossover_is_in_its_interval(size, inside):
    first, second = (fit_scaling_law(*measure(law, start=s), "m1") for s, law in enumerate(crossing(size)))
    found = crossover(first, second)
    assert (found.inside, found.ahead) == (inside, 0)
    assert found.low < size < found.high
    assert found.high / found.low < 3
    text = describe_crossover(found, "steep", "flat")
    assert text.startswith("steep passes flat at ")
    assert ("inside the data" in text) == inside
    assert ("extrapolated by a factor of 1." in text) != inside


def crossing(size):
    return lambda x: 6 * x**-0.45, lambda x: 6 * size**-0.2 * x**-0.25


def test_models_that_never_cross_are_said_not_to():
    first, second = (fit_scaling_law(*measure(lambda x, b=b: b * x**-0.4, start=b)) for b in (3, 4))
    assert crossover(first, second) is None
    found = find_crossover(first, second)
    assert found.p_none > 0.9
    text = describe_crossover(found, "a", "b")
    assert text == "a and b: no crossover is seen within 2x of the data (probability of none: above 99%)"
    noisy = [fit_scaling_law(*measure(lambda x: 3 * x**-0.4, noise=0.2, start=start)) for start in (0, 1)]
    assert describe_crossover(find_crossover(*noisy), "a", "b").endswith("as neither is clearly ahead at any size")


def test_noise_that_models_share_does_not_blur_their_crossover():
    rng = np.random.default_rng(5)
    shared = 0.15 * rng.normal(size=24)
    fits = [fit_scaling_law(*measure(law, 0.02, shared=shared, start=s), "m1") for s, law in enumerate(crossing(6_000))]
    paired = crossover(*fits)
    x, e = measure(crossing(6_000)[1], 0.02, shared=shared, start=1)
    apart = crossover(fits[0], fit_scaling_law(x, e, "m1", seeds=[7, 8, 9] * 8))  # other seeds: other subsets
    assert paired.high / paired.low < (apart.high / apart.low) ** 0.5


@pytest.mark.parametrize(
    ("sizes", "errors", "options", "message"),
    [
        ([1, 2], [0.5, 0.4], {}, "needs 3"),
        ([1, 2, 3], [0.5, 0.4, 0], {}, "positive"),
        ([1, 2, 3], [0.5, 0.4], {}, "3 and 2 values"),
        ([1, 2, 3], [0.5, 0.4, 0.3], {"law": "m5"}, "choices: auto"),
        ([1, 2, 3], [0.5, 0.4, 0.3], {"law": "m4"}, "parameters"),
        ([1, 2, 3], [0.5, 0.4, 0.3], {"chance": 0.1}, "error of guessing"),
    ],
)
def test_what_cannot_be_fitted_is_refused(sizes, errors, options, message):
    with pytest.raises(UserError, match=message):
        fit_scaling_law(sizes, errors, **options)
