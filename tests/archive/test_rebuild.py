"""A ledger made again from run folders equals the one that was lost."""

from __future__ import annotations

from ledger_records import attempt, candidate, finalist, header, model_call, passed

from kernelwright.archive.ledger import Archive
from kernelwright.archive.rebuild import rebuild
from kernelwright.archive.run_folder import RunFolder
from kernelwright.core.records import Record


class Result(Record):
    outcome: str
    stop_reason: str
    best: str


def make_run(folder, run):
    first, second = candidate(f"{run} a"), candidate(f"{run} b", parents=("0" * 64,))
    folder.path.mkdir(parents=True)
    folder.start(header(run))
    folder.append("attempts.jsonl", attempt(1, first, passed(first), run=run))
    folder.append("attempts.jsonl", attempt(2, second, passed(second, 2.0, 2.1), run=run))
    folder.append("finalists.jsonl", finalist(0, second, passed(second, 1.8, 1.9), run=run))
    folder.append("calls.jsonl", model_call(1, run=run, cost_usd=None))
    folder.write_result(Result(outcome="improved", stop_reason="exhausted", best=second.id))
    return second


def test_folders_are_enough(tmp_path):
    winners = {run: make_run(RunFolder(tmp_path / "runs" / run), run) for run in ("one", "two")}
    torn = tmp_path / "runs" / "one" / "attempts.jsonl"
    torn.write_bytes(torn.read_bytes() + b'{"run":"one","ind')
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "run.json").write_text("not json")
    with Archive.open(tmp_path / "archive.sqlite") as archive:
        for _ in range(2):
            found = rebuild(archive, [tmp_path / "runs"])
            assert (found.runs, found.attempts) == (("one", "two"), 4)
            assert list(found.unreadable) == [str(tmp_path / "runs" / "broken")]
        for run, winner in winners.items():
            assert archive.attempts(run) == RunFolder(tmp_path / "runs" / run).attempts()
            assert archive.finalists(run)[0].candidate == winner.id
            assert archive.model_calls(run) == [model_call(1, run=run, cost_usd=None)]
            summary = archive.run(run)
            assert (summary.outcome, summary.best, summary.speedup) == ("improved", winner.id, 1.85)
            assert summary.folder == str(tmp_path / "runs" / run)
