"""Refusals in the providers' own words, by provider and kind.

The shapes come from the providers' documentation and from the CLIs' own parsers; the times in them are far
enough in the future that no CLI waits for them by itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.real.provider.turns import Fault, Json

RESET_AT = 1893456000
"""2030-01-01 00:00 UTC, in seconds since the epoch."""

ZEBRA = "The zebra is not amused."
"""A refusal whose words no provider has."""


def _anthropic(status: int, kind: str, message: str, **headers: str) -> Fault:
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_011scripted"}
    return Fault(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


def _openai(status: int, kind: str, code: str | None, message: str, **more: object) -> Fault:
    return Fault(status, {"error": {"message": message, "type": kind, "param": None, "code": code, **more}})


def _google(code: int, status: str, message: str, *details: Json) -> Fault:
    return Fault(code, {"error": {"code": code, "message": message, "status": status, "details": [*details]}})


def _quota(metric: str, quota: str, value: str) -> Json:
    return {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [
            {
                "quotaMetric": f"generativelanguage.googleapis.com/{metric}",
                "quotaId": quota,
                "quotaDimensions": {"location": "global", "model": "gemini-2.5-pro"},
                "quotaValue": value,
            }
        ],
    }


def _retry(delay: str) -> Json:
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}


def _anthropic_limit(reset_at: int, claim: str) -> Fault:
    return _anthropic(
        429,
        "rate_limit_error",
        "This request would exceed your account's rate limit. Please try again later.",
        anthropic_ratelimit_unified_status="rejected",
        anthropic_ratelimit_unified_reset=str(reset_at),
        anthropic_ratelimit_unified_representative_claim=claim,
        anthropic_ratelimit_unified_fallback="unavailable",
        anthropic_ratelimit_unified_overage_status="rejected",
        anthropic_ratelimit_unified_overage_disabled_reason="org_level_disabled",
    )


def _openai_limit(reset_at: int, seconds: int) -> Fault:
    return _openai(
        429,
        "usage_limit_reached",
        None,
        "The usage limit has been reached",
        plan_type="plus",
        resets_at=reset_at,
        resets_in_seconds=seconds,
    )


_QUOTA_TEXT = (
    "You exceeded your current quota, please check your plan and billing details. For more information on "
    "this error, head over to: https://ai.google.dev/gemini-api/docs/rate-limits.\n* Quota exceeded for "
    "metric: generativelanguage.googleapis.com/{metric}, limit: {limit}, model: gemini-2.5-pro\n"
    "Please retry in {delay}."
)

ANTHROPIC: Mapping[str, Fault] = {
    "unauthorised": _anthropic(401, "authentication_error", "invalid x-api-key"),
    "rate-limit": _anthropic(
        429,
        "rate_limit_error",
        "This request would exceed your organization's rate limit of 50,000 input tokens per minute "
        "(org: 00000000-0000-0000-0000-000000000000, model: claude-sonnet-4-5).",
        retry_after="1",
    ),
    "usage-limit": _anthropic_limit(RESET_AT, "five_hour"),
    "no-credit": _anthropic(
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade "
        "or purchase credits.",
    ),
    "overload": _anthropic(529, "overloaded_error", "Overloaded"),
    "forbidden": _anthropic(403, "zebra_error", ZEBRA),
    "unknown-model": _anthropic(404, "not_found_error", "model: no-such-model"),
}

OPENAI: Mapping[str, Fault] = {
    "unauthorised": _openai(
        401,
        "invalid_request_error",
        "invalid_api_key",
        "Incorrect API key provided: sk-dummy*0000. You can find your API key at "
        "https://platform.openai.com/account/api-keys.",
    ),
    "rate-limit": _openai(
        429,
        "tokens",
        "rate_limit_exceeded",
        "Rate limit reached for gpt-5.5 in organization org-scripted on tokens per min (TPM): Limit 30000, "
        "Used 29000, Requested 2000. Please try again in 12.3s. Visit "
        "https://platform.openai.com/account/rate-limits to learn more.",
    ),
    "usage-limit": _openai_limit(RESET_AT, 277200),
    "no-credit": _openai(
        429,
        "insufficient_quota",
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details. For more information "
        "on this error, read the docs: https://platform.openai.com/docs/guides/error-codes/api-errors.",
    ),
    "overload": _openai(
        503, "server_error", "server_is_overloaded", "The server is overloaded or not ready yet."
    ),
    "forbidden": _openai(403, "zebra_error", "zebra", ZEBRA),
    "unknown-model": _openai(
        404,
        "invalid_request_error",
        "model_not_found",
        "The model `no-such-model` does not exist or you do not have access to it.",
    ),
}

GOOGLE: Mapping[str, Fault] = {
    "unauthorised": _google(
        400,
        "INVALID_ARGUMENT",
        "API key not valid. Please pass a valid API key.",
        {
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": "API_KEY_INVALID",
            "domain": "googleapis.com",
            "metadata": {"service": "generativelanguage.googleapis.com"},
        },
    ),
    "rate-limit": _google(
        429,
        "RESOURCE_EXHAUSTED",
        _QUOTA_TEXT.format(metric="generate_content_paid_tier_requests", limit="5", delay="1.5s"),
        _quota("generate_content_paid_tier_requests", "GenerateRequestsPerMinutePerProjectPerModel", "5"),
        _retry("1.5s"),
    ),
    "usage-limit": _google(
        429,
        "RESOURCE_EXHAUSTED",
        _QUOTA_TEXT.format(metric="generate_content_free_tier_requests", limit="100", delay="12h34m56.789s"),
        _quota(
            "generate_content_free_tier_requests", "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "100"
        ),
        _retry("45296.789s"),
    ),
    "usage-limit-delay": _google(
        429,
        "RESOURCE_EXHAUSTED",
        _QUOTA_TEXT.format(metric="generate_content_requests", limit="1000", delay="12h34m56.789s"),
        _retry("45296.789s"),
    ),
    "overload": _google(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    "forbidden": _google(403, "ZEBRA", ZEBRA),
    "unknown-model": _google(
        404,
        "NOT_FOUND",
        "models/no-such-model is not found for API version v1beta, or is not supported for generateContent. "
        "Call ListModels to see the list of available models and their supported methods.",
    ),
}

FAULTS: Mapping[str, Mapping[str, Fault]] = {
    "anthropic": ANTHROPIC,
    "responses": OPENAI,
    "chat": OPENAI,
    "gemini": GOOGLE,
}


def usage_limit(dialect: str, claim: str, reset_at: int, in_s: float) -> Fault:
    """Return the refusal of an account whose allowance is used up.

    `reset_at` is in seconds since the epoch, and `in_s` seconds away; `claim` is what Anthropic calls the
    allowance (`five_hour`, `seven_day`).
    """
    match dialect:
        case "anthropic":
            return _anthropic_limit(reset_at, claim)
        case "gemini":
            return GOOGLE["usage-limit"]
    return _openai_limit(reset_at, round(in_s))
