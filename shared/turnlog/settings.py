"""All settings of the service, in one frozen model that `turnlog.app` reads. The page Configuration is made of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Literal, Self
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from turnlog.core.errors import InvalidInputError, problem_text
from turnlog.core.json_values import json_or_text

PREFIX = "TURNLOG_"
CLIENT_VARIABLES = frozenset(f"{PREFIX}{name}" for name in ("URL", "DATA", "TENANT", "USER", "TOKEN", "MCP_TOKEN"))
"""Variables of the command line, which are no settings of the service."""
_TESTS = PREFIX + "TEST_"
LOCAL_OPERATOR = "turnlog:operator"
"""Scope of each caller of `turnlog serve`: who reaches it may do everything."""
_IamName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_+=.@-]{1,64}$")]
_Role = Annotated[
    str, Field(pattern=r"^(arn:aws[\w-]*:iam::[0-9]{12}:role/([A-Za-z0-9_+=.@/-]*/)?)?[A-Za-z0-9_+=.@-]{1,64}$")
]


class Settings(BaseModel):
    """The settings of the service. Each field is the environment variable ``TURNLOG_<NAME>``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: str = Field(
        default="memory://",
        description="Where sessions are kept: sqlite:///PATH, memory://, or dynamodb://TABLE?bucket=B&queue=Q&region=R",
    )
    identity: Literal["iam", "jwt"] = Field(
        default="iam",
        description="Who calls: iam (tenant = account, user = role, or iam-user/NAME) or jwt (the claims below)",
    )
    tenant_claim: str = Field(default="tenant", min_length=1, description="JWT claim that names the tenant")
    user_claim: str = Field(default="sub", min_length=1, description="JWT claim that names the user")
    delegating_principals: tuple[_Role, ...] = Field(
        default=(), description="Roles (names or ARNs, by commas) that may name the person in X-Turnlog-User; iam only"
    )
    plain_iam_users: tuple[_IamName, ...] = Field(
        default=(), description="IAM users that own the sessions of their plain name; a role of it is iam-role/NAME"
    )
    operator_principals: tuple[_Role, ...] = Field(
        default=(),
        description="Roles (names or ARNs, by commas) that list sessions of all users of their tenant; iam only",
    )
    operator_scope: str = Field(
        default="",
        max_length=256,
        pattern=r"^[^\s\[\]]*$",
        description="Scope of a JWT (claim scope or scp) whose bearer lists sessions of all users of its tenant",
    )
    token_counter: Literal["o200k_base", "estimate"] = Field(
        default="o200k_base",
        description="Token counter at append: the vocabulary that ships with Turnlog, or an estimate by script",
    )
    models: dict[str, Annotated[int, Field(ge=1, le=100_000_000)]] = Field(
        default_factory=dict,
        description='Context sizes of other models, as JSON: {"my-model": 32000}. The longest prefix of a name decides',
    )
    summary_model: str = Field(
        default="",
        max_length=2048,
        description="Bedrock model, or with TURNLOG_SUMMARY_URL the endpoint's name of one. Without it they are extracted",
    )
    summary_url: str = Field(
        default="",
        description="Base URL of an OpenAI-compatible endpoint, such as https://api.openai.com/v1, in place of Bedrock",
    )
    summary_api_key: SecretStr = Field(
        default=SecretStr(""), description="Bearer key of that endpoint; never logged nor shown"
    )
    summary_timeout_seconds: int = Field(
        default=20,
        ge=1,
        le=600,
        description="Time limit for one call of the model; all tries together take at most a quarter more",
    )
    summary_tokens_per_day: int = Field(
        default=1_000_000,
        ge=0,
        description="Tokens of a tenant's summaries per day (UTC), in and out. Above it, they are extracted",
    )
    memory: Literal["facts", "none", "agentcore", "webhook"] = Field(
        default="facts", description="Long-term memory: facts (kept with the sessions), none, agentcore or webhook"
    )
    memory_id: str = Field(default="", max_length=256, description="Id or ARN of the AgentCore memory")
    memory_namespace: str = Field(
        default="/turnlog/{actorId}/{sessionId}/",
        max_length=512,
        description="Namespace template of all strategies of that memory",
    )
    memory_region: str = Field(
        default="", max_length=32, description="Region of that memory; without it the engine's, else the environment's"
    )
    memory_webhook_url: str = Field(
        default="", max_length=2048, description="https address that the webhook engine posts to"
    )
    memory_webhook_secret: SecretStr = Field(
        default=SecretStr(""),
        description="Secret that signs the requests to the webhook, at least 16 characters; never logged nor shown",
    )
    memory_timeout_seconds: int = Field(
        default=10, ge=1, le=60, description="Time limit for one request to AgentCore or the webhook"
    )
    rerank_model: str = Field(
        default="",
        max_length=2048,
        pattern=r"^$|titan-embed|cohere\.embed",
        description="Bedrock embedding model (titan-embed or cohere.embed) that ranks search results by meaning as well",
    )
    rerank_timeout_seconds: int = Field(
        default=3,
        ge=1,
        le=20,
        description="Time limit for the embedding model; after it, results are ranked by words alone",
    )
    telemetry: Literal["off", "opentelemetry"] = Field(
        default="off",
        description="opentelemetry: spans and metrics, never contents (extra otel, or ADOT's Lambda layer)",
    )
    steps: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")], ...] = Field(
        default=(),
        description="Your own modules that register steps of policies, separated by commas; they are imported at start",
    )
    tenant_role_arn: str = Field(
        default="",
        max_length=2048,
        pattern=r"^$|^arn:aws[\w-]*:iam::\d{12}:role/[\w+=,.@/-]+$",
        description="Role assumed with the session tag `tenant` for each tenant's requests; else the process's own rights",
    )
    endpoint_url: str | None = Field(
        default=None, description="Another address for DynamoDB, S3, SQS, STS and Bedrock, for tests and emulators"
    )
    queue_visibility_seconds: int = Field(
        default=360, ge=1, le=43_200, description="Embedded queue: time for which a received job is hidden"
    )
    queue_max_receives: int = Field(
        default=5, ge=1, le=1000, description="Embedded queue: deliveries before a job is a dead letter"
    )

    @field_validator("summary_api_key")
    @classmethod
    def _check_header_value(cls, key: SecretStr) -> SecretStr:
        text = key.get_secret_value()
        if not text.isascii() or not text.isprintable() or " " in text:
            raise ValueError("a key has printable ASCII characters and no spaces")
        return key

    @model_validator(mode="after")
    def _check_dependencies(self) -> Self:
        if self.summary_url and not self.summary_model:
            raise ValueError("TURNLOG_SUMMARY_URL is set and TURNLOG_SUMMARY_MODEL is not")
        if self.memory == "agentcore" and not self.memory_id:
            raise ValueError("TURNLOG_MEMORY is agentcore and TURNLOG_MEMORY_ID is not set")
        if self.memory == "webhook" and not (self.memory_webhook_url and self.memory_webhook_secret.get_secret_value()):
            raise ValueError(
                "TURNLOG_MEMORY is webhook and TURNLOG_MEMORY_WEBHOOK_URL or TURNLOG_MEMORY_WEBHOOK_SECRET is not set"
            )
        return self

    @property
    def engine_region(self) -> str | None:
        """The AWS region in the engine's URL, or None."""
        return parse_qs(urlsplit(self.engine).query).get("region", [None])[0]

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read the settings from environment variables, by default the process's own.

        Raises an `InvalidInputError` that names an unknown ``TURNLOG_`` variable or one with a bad value.
        """
        variables = dict(os.environ if environment is None else environment)
        named: dict[str, object] = {
            name[len(PREFIX) :].lower(): value
            for name, value in variables.items()
            if name.startswith(PREFIX) and name not in CLIENT_VARIABLES and not name.startswith(_TESTS) and value != ""
        }
        for name in ("delegating_principals", "operator_principals", "plain_iam_users", "steps"):
            if name in named:
                named[name] = tuple(part.strip() for part in str(named[name]).split(",") if part.strip())
        if "models" in named:
            named["models"] = json_or_text(str(named["models"]))  # the model refuses a text
        try:
            return cls.model_validate(named)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            variable = PREFIX + str(first["loc"][0]).upper() if first["loc"] else ""
            text = problem_text(first, variable)
            # pydantic's error quotes the values, and one of them may be a secret.
            detail = text if variable in text else f"{variable}: {text}"
            raise InvalidInputError(detail, code="invalid_settings") from None
