"""mapae from Python: hand jobs over (:class:`Mapae`, :class:`AsyncMapae`), do them by pulling (:class:`Worker`) or
by being called (:class:`Push`), and test against the real program (:mod:`mapae.testing`).
"""

from .aio import AsyncMapae
from .client import Mapae
from .context import AsyncContext, Context
from .errors import JobFailed, MapaeError, Problem, Unreachable, WaitTimeout
from .failures import Retryable, RetryAfter, Stale, Stopped, Terminal
from .model import Event, Failure, Job, Lease, Progress, Source
from .push import Push
from .signature import Secrets, SignatureInvalid
from .worker import Worker

__all__ = [
    "AsyncContext",
    "AsyncMapae",
    "Context",
    "Event",
    "Failure",
    "Job",
    "JobFailed",
    "Lease",
    "Mapae",
    "MapaeError",
    "Problem",
    "Progress",
    "Push",
    "Retryable",
    "RetryAfter",
    "Secrets",
    "SignatureInvalid",
    "Source",
    "Stale",
    "Stopped",
    "Terminal",
    "Unreachable",
    "WaitTimeout",
    "Worker",
]
