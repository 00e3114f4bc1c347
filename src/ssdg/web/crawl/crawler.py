"""The crawl: an engine finds URLs, several threads fetch and check them, one thread records the results."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from ...data.parallel import ProgressCallback
from ...data.sources.manifest import MAX_LICENSE_CHARS, REFUSED, Row
from ...errors import one_line
from ..collection_report import CollectionReport, count_classes
from ..store import Store
from ..untrusted import MAX_URL_LENGTH, TRANSIENT_REASONS, LimitReached, Picture, Refused, check_picture
from .engines import Candidate, Engine
from .fetch_url import Fetcher


@dataclass(frozen=True)
class CrawlPlan:
    """What to crawl."""

    labels: tuple[str, ...]
    per_class: int
    source: str  # the name of the engine
    keyword: str = "{class}"  # template
    threads: int = 4
    min_side: int = 1
    retry: bool = False  # fetch again files refused for a transient reason

    def keyword_of(self, label: str) -> str:
        """Return the search keyword of a class."""
        return self.keyword.replace("{class}", label)


@dataclass
class CrawlOutcome:
    """How a crawl ended."""

    stopped: str = ""  # the limit that ended the crawl
    problems: dict[str, str] = field(default_factory=dict)  # class -> why its search ended early


@dataclass
class _ClassQueue:
    """The candidates of one class and the URLs already seen."""

    label: str
    candidates: Iterator[Candidate]
    num_running: int = 0
    seen: set[str] = field(default_factory=set)


@dataclass
class _Crawl:
    engine: Engine
    plan: CrawlPlan
    store: Store
    fetcher: Fetcher
    outcome: CrawlOutcome = field(default_factory=CrawlOutcome)
    running: dict[Future[Picture], tuple[_ClassQueue, Row]] = field(default_factory=dict)

    def run(self, pool: ThreadPoolExecutor, progress: ProgressCallback) -> None:
        labels = self.plan.labels
        queues = [_ClassQueue(label, self.engine.search(label, self.plan.keyword_of(label))) for label in labels]
        while True:
            self._start(queues, pool)
            if not self.running:
                return
            for future in wait(self.running, return_when=FIRST_COMPLETED).done:
                self._finish(future)
            progress(sum(map(self.store.num_kept, labels)), self.plan.per_class * len(labels))

    def _start(self, queues: list[_ClassQueue], pool: ThreadPoolExecutor) -> None:
        """Fill idle threads, one candidate of every class per round."""
        open_queues = list(queues)
        while open_queues and len(self.running) < self.plan.threads and not self.outcome.stopped:
            for queue in list(open_queues):
                is_full = self.store.num_kept(queue.label) + queue.num_running >= self.plan.per_class
                row = None if is_full else self._next(queue)
                if row is None:
                    open_queues.remove(queue)
                else:
                    queue.num_running += 1
                    self.running[pool.submit(self._fetch, row.url)] = (queue, row)

    def _next(self, queue: _ClassQueue) -> Row | None:
        """Return the next candidate to fetch; candidates with a known result are recorded without fetching."""
        try:
            for candidate in queue.candidates:
                url = candidate.url[: MAX_URL_LENGTH + 1]
                if url in queue.seen:
                    continue
                queue.seen.add(url)
                row = self._row(queue.label, url, candidate.licence)
                if row.key in self.store.manifest.rows and not self._should_retry(self.store.manifest.rows[row.key]):
                    continue
                recorded = self.store.find_url(url)
                if recorded is None or self._should_retry(recorded):
                    return row
                reason = ("duplicate", recorded.path) if recorded.kept else (recorded.reason, recorded.detail)
                self.store.refuse(row, Refused(*reason))
        except Refused as refusal:
            self.outcome.problems[queue.label] = str(refusal)
        except LimitReached as limit:
            self.outcome.stopped = str(limit)
        return None

    def _row(self, label: str, url: str, licence: str) -> Row:
        keyword, licence = self.plan.keyword_of(label), one_line(licence, MAX_LICENSE_CHARS)
        return Row(label, REFUSED, source=self.plan.source, origin=keyword, url=url, licence=licence)

    def _should_retry(self, row: Row) -> bool:
        return self.plan.retry and row.reason in TRANSIENT_REASONS

    def _fetch(self, url: str) -> Picture:
        return check_picture(self.fetcher.fetch_image(url), self.plan.min_side)

    def _finish(self, future: Future[Picture]) -> None:
        queue, row = self.running.pop(future)
        queue.num_running -= 1
        try:
            self.store.keep(row, future.result())
        except Refused as refusal:
            self.store.refuse(row, refusal)
        except LimitReached as limit:
            self.outcome.stopped = str(limit)


def crawl(
    engine: Engine, plan: CrawlPlan, store: Store, fetcher: Fetcher, progress: ProgressCallback
) -> CrawlOutcome:
    """Fetch until every class has enough images, the engine has no more, or a limit is reached."""
    state = _Crawl(engine, plan, store, fetcher)
    pool = ThreadPoolExecutor(plan.threads)
    try:
        state.run(pool, progress)
    finally:
        fetcher.budget.stopped.set()
        pool.shutdown(cancel_futures=True)
    return state.outcome


def report_crawl(store: Store, plan: CrawlPlan, outcome: CrawlOutcome) -> CollectionReport:
    """Report a crawl, with the problems it met."""
    notes = [f"{label}: engine {plan.source} stopped: {problem}" for label, problem in outcome.problems.items()]
    if store.num_lost:
        notes.append(f"{store.num_lost} files of the manifest were missing or truncated and were dropped from it")
    if outcome.stopped:
        notes.append(f"{outcome.stopped}; run the same command again to resume")
    return CollectionReport(count_classes(store.manifest, plan.labels, plan.per_class), notes)
