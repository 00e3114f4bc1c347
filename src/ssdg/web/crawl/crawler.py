"""The crawl: engines find, a few threads fetch and check, one thread decides and records."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from ...data.parallel import Progress
from ...data.sources.manifest import MOST_LICENCE_LETTERS, REFUSED, Row
from ..store import Store
from ..untrusted import PASSING, Picture, Refused, Spent, check_picture, one_line
from .engines import Engine, Found
from .fetch_url import Fetcher
from .http_get import MOST_URL_LETTERS


@dataclass(frozen=True)
class Plan:
    """What is asked for."""

    labels: tuple[str, ...]
    per_class: int
    source: str  # the name of the engine
    keyword: str = "{class}"  # template
    threads: int = 4
    min_side: int = 1
    retry: bool = False  # fetch again what was refused for a reason that may have passed

    def keyword_of(self, label: str) -> str:
        """What is searched for."""
        return self.keyword.replace("{class}", label)


@dataclass
class Outcome:
    """How a crawl ended."""

    stopped: str = ""  # the limit that ended it
    problems: dict[str, str] = field(default_factory=dict)  # class -> why its engine ended early


@dataclass
class _Line:
    """The candidates of one class, those known already passed over."""

    label: str
    found: Iterator[Found]
    running: int = 0
    seen: set[str] = field(default_factory=set)


@dataclass
class _Crawl:
    engine: Engine
    plan: Plan
    store: Store
    fetcher: Fetcher
    outcome: Outcome = field(default_factory=Outcome)
    running: dict[Future[Picture], tuple[_Line, Row]] = field(default_factory=dict)

    def run(self, pool: ThreadPoolExecutor, progress: Progress) -> None:
        labels = self.plan.labels
        lines = [_Line(label, self.engine.search(label, self.plan.keyword_of(label))) for label in labels]
        while True:
            self._start(lines, pool)
            if not self.running:
                return
            for future in wait(self.running, return_when=FIRST_COMPLETED).done:
                self._finish(future)
            progress(sum(map(self.store.num_kept, labels)), self.plan.per_class * len(labels))

    def _start(self, lines: list[_Line], pool: ThreadPoolExecutor) -> None:
        """Give work to idle threads, one candidate of every class in each round."""
        open_lines = list(lines)
        while open_lines and len(self.running) < self.plan.threads and not self.outcome.stopped:
            for line in list(open_lines):
                is_enough = self.store.num_kept(line.label) + line.running >= self.plan.per_class
                row = None if is_enough else self._next(line)
                if row is None:
                    open_lines.remove(line)
                else:
                    line.running += 1
                    self.running[pool.submit(self._fetch, row.url)] = (line, row)

    def _next(self, line: _Line) -> Row | None:
        """The next candidate that must be fetched; what is known of the others is recorded without."""
        try:
            for found in line.found:
                url = found.url[: MOST_URL_LETTERS + 1]
                if url in line.seen:
                    continue
                line.seen.add(url)
                row = self._row(line.label, url, found.licence)
                if row.key in self.store.manifest.rows and not self._try_again(self.store.manifest.rows[row.key]):
                    continue
                elsewhere = self.store.known(url)
                if elsewhere is None or self._try_again(elsewhere):
                    return row
                reason = ("duplicate", elsewhere.path) if elsewhere.kept else (elsewhere.reason, elsewhere.detail)
                self.store.refuse(row, Refused(*reason))
        except Refused as why:
            self.outcome.problems[line.label] = str(why)
        except Spent as limit:
            self.outcome.stopped = str(limit)
        return None

    def _row(self, label: str, url: str, licence: str) -> Row:
        keyword, licence = self.plan.keyword_of(label), one_line(licence, MOST_LICENCE_LETTERS)
        return Row(label, REFUSED, source=self.plan.source, origin=keyword, url=url, licence=licence)

    def _try_again(self, row: Row) -> bool:
        return self.plan.retry and row.reason in PASSING

    def _fetch(self, url: str) -> Picture:
        return check_picture(self.fetcher.image(url), self.plan.min_side)

    def _finish(self, future: Future[Picture]) -> None:
        line, row = self.running.pop(future)
        line.running -= 1
        try:
            self.store.keep(row, future.result())
        except Refused as why:
            self.store.refuse(row, why)
        except Spent as limit:
            self.outcome.stopped = str(limit)


def crawl(engine: Engine, plan: Plan, store: Store, fetcher: Fetcher, progress: Progress) -> Outcome:
    """Fetch until every class has its images, the engine has no more, or a limit is reached."""
    work = _Crawl(engine, plan, store, fetcher)
    pool = ThreadPoolExecutor(plan.threads)
    try:
        work.run(pool, progress)
    finally:
        fetcher.budget.stopped.set()
        pool.shutdown(cancel_futures=True)
    return work.outcome
