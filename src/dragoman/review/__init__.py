"""What a record says of its model calls: their requests, rendered again, and why a provider's cache missed. Pure."""

from .cache import CacheCall, review_cache
from .calls import PastCall, find_calls
from .pairs import CacheCause
from .rendering import PastRequest, PastRequests

__all__ = ["CacheCall", "CacheCause", "PastCall", "PastRequest", "PastRequests", "find_calls", "review_cache"]
