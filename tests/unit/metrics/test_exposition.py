"""The text that Prometheus reads, read back by Prometheus' own parser."""

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.metrics import exposition
from ottla.broker.metrics.exposition import render
from ottla.broker.metrics.families import Family, Kind, Value, labels_text
from ottla.broker.metrics.histogram import Histogram

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def a_family(kind: Kind, name: str = "kafka_log_log_size", scale: float = 1.0) -> Family:
    return Family(name, kind, ("topic",), "", 'Bytes \\ of\nthe "log".', lambda view: (), scale)


def parsed(*found: tuple[Family, list[tuple[str, Value]]]) -> Samples:
    rows = [(family, [labels for labels, _ in values], [value for _, value in values]) for family, values in found]
    families = text_string_to_metric_families(b"".join(render(rows)).decode())
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for family in families for sample in family.samples}


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=20))
@settings(max_examples=100, deadline=None)
def test_any_value_of_a_label_comes_back(value: str) -> None:
    found = parsed((a_family(Kind.GAUGE), [(labels_text(("topic",), (value,)), 5)]))
    assert found == {("kafka_log_log_size", (("topic", value),)): 5.0}


def test_a_counter_keeps_its_name_and_large_numbers_their_digits() -> None:
    name = "kafka_server_brokertopicmetrics_bytesin_total"
    assert parsed((a_family(Kind.COUNTER, name), [("", 2**52 + 1)])) == {(name, ()): 2**52 + 1}


def test_a_histogram_has_quantiles_a_sum_and_a_count() -> None:
    histogram = Histogram()
    histogram.add(2000, 3)
    found = parsed((a_family(Kind.SUMMARY, "t", 0.001), [('{topic="a"}', histogram.look())]))
    quantiles = [key for key in found if key[0] == "t"]
    assert [dict(labels)["quantile"] for _, labels in quantiles] == ["0.50", "0.75", "0.95", "0.98", "0.99", "0.999"]
    assert found["t_count", (("topic", "a"),)] == 3
    assert found["t_sum", (("topic", "a"),)] == 6
    assert all(abs(found[key] - 2) < 0.13 for key in quantiles)


def test_a_histogram_without_labels_has_none_but_the_quantile() -> None:
    found = parsed((a_family(Kind.SUMMARY, "t"), [("", Histogram().look())]))
    assert ("t_count", ()) in found
    assert ("t", (("quantile", "0.50"),)) in found


def test_many_lines_are_made_with_pauses_and_all_there() -> None:
    count = 3 * exposition.LINES_PER_TURN + 7
    values: list[tuple[str, Value]] = [(labels_text(("topic",), (i,)), i) for i in range(count)]
    assert len(parsed((a_family(Kind.GAUGE), values))) == count


def test_a_name_without_an_encoding_is_shown_with_question_marks() -> None:
    found = parsed((a_family(Kind.GAUGE), [(labels_text(("topic",), ("a\ud800\udcff",)), 5)]))
    assert found == {("kafka_log_log_size", (("topic", "a??"),)): 5.0}
