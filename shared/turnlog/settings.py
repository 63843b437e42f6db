"""All settings, in one frozen model. Read only by `turnlog.app`; documented in docs/configuration.md, generated from here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from turnlog.core.errors import InvalidInputError, MalformedError
from turnlog.core.json_values import parse_strict_json

PREFIX = "TURNLOG_"
CLIENT_VARIABLES = frozenset({"TURNLOG_URL", "TURNLOG_DATA", "TURNLOG_TENANT", "TURNLOG_USER", "TURNLOG_TOKEN"})
"""What the command line reads; no settings of the service."""
_TESTS = PREFIX + "TEST_"
_IamName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_+=.@-]{1,64}$")]
_Role = Annotated[
    str, Field(pattern=r"^(arn:aws[\w-]*:iam::[0-9]{12}:role/([A-Za-z0-9_+=.@/-]*/)?)?[A-Za-z0-9_+=.@-]{1,64}$")
]


class Settings(BaseModel):
    """Each field is the environment variable ``TURNLOG_<NAME>``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: str = Field(
        default="memory://",
        description="Where sessions are kept: sqlite:///PATH, memory://, or dynamodb://TABLE?bucket=B&queue=Q&region=R",
    )
    identity: Literal["iam", "jwt"] = Field(
        default="iam",
        description="Who calls: iam (tenant = account, user = role, or iam-user/NAME of an IAM user) or jwt (tenant and user "
        "from the claims named below)",
    )
    tenant_claim: str = Field(default="tenant", min_length=1, description="JWT claim that names the tenant")
    user_claim: str = Field(default="sub", min_length=1, description="JWT claim that names the user")
    delegating_principals: tuple[_Role, ...] = Field(
        default=(),
        description="Names or ARNs of the roles that may name the person in X-Turnlog-User, separated by commas; for iam only",
    )
    plain_iam_users: tuple[_IamName, ...] = Field(
        default=(),
        description="IAM users that own the sessions of their plain name, as every user did at first, separated by commas. A role "
        "of that name then is iam-role/NAME",
    )
    token_counter: Literal["o200k_base", "estimate"] = Field(
        default="o200k_base",
        description="How tokens are counted at append: by the vocabulary that ships with us, or by script",
    )
    models: dict[str, Annotated[int, Field(ge=1, le=100_000_000)]] = Field(
        default_factory=dict,
        description='Context sizes of models that we do not know, or know otherwise, as JSON: {"my-model": 32000}. The longest '
        "prefix of a model's name decides; a call's `budget` wins over it",
    )
    summary_model: str = Field(
        default="",
        max_length=2048,
        description="Model that writes summaries: the id of a Bedrock model or inference profile, or with TURNLOG_SUMMARY_URL a "
        "name that the endpoint knows. Without it they are extracted, and no model is called",
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
        description="What one call of the model may take; all tries together take at most a quarter more",
    )
    summary_tokens_per_day: int = Field(
        default=1_000_000,
        ge=0,
        description="Tokens, in and out, that a tenant's summaries may take of the model on a day (UTC). Over it they are "
        "extracted",
    )
    memory: Literal["facts", "none", "agentcore", "webhook"] = Field(
        default="facts",
        description="Long-term memory: facts (made of what was said, kept with the sessions), none, agentcore (Amazon Bedrock "
        "AgentCore Memory) or webhook (an engine of your own)",
    )
    memory_id: str = Field(default="", max_length=256, description="Id or ARN of the AgentCore memory")
    memory_namespace: str = Field(
        default="/turnlog/{actorId}/{sessionId}/",
        max_length=512,
        description="Namespace template that all strategies of that memory have",
    )
    memory_region: str = Field(
        default="", max_length=32, description="Region of that memory; without it the engine's, else the environment's"
    )
    memory_webhook_url: str = Field(
        default="", max_length=2048, description="https address that the webhook engine posts to"
    )
    memory_webhook_secret: SecretStr = Field(
        default=SecretStr(""),
        description="What its requests are signed with, at least 16 characters; never logged nor shown",
    )
    memory_timeout_seconds: int = Field(
        default=10, ge=1, le=60, description="What one request to AgentCore or the webhook may take"
    )
    rerank_model: str = Field(
        default="",
        max_length=2048,
        pattern=r"^$|titan-embed|cohere\.embed",
        description="Bedrock embedding model (titan-embed or cohere.embed) that puts what search has found in order by meaning "
        "too. Without it words alone decide, and no model is called",
    )
    rerank_timeout_seconds: int = Field(
        default=3, ge=1, le=20, description="What it may take; then the order is that of the words"
    )
    steps: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")], ...] = Field(
        default=(),
        description="Modules of your own that register steps of policies, separated by commas; they are imported at start",
    )
    tenant_role_arn: str = Field(
        default="",
        max_length=2048,
        pattern=r"^$|^arn:aws[\w-]*:iam::\d{12}:role/[\w+=,.@/-]+$",
        description="Role that is assumed with the session tag `tenant` for all that is asked of the table and the bucket for a "
        "tenant (docs/operations.md, Tenant isolation). Without it the process's own rights are used",
    )
    endpoint_url: str | None = Field(
        default=None, description="Another address for DynamoDB, S3, SQS, STS and Bedrock, for tests and emulators"
    )
    queue_visibility_seconds: int = Field(
        default=360, ge=1, le=43_200, description="Embedded queue: how long a job is hidden once received"
    )
    queue_max_receives: int = Field(
        default=5, ge=1, le=1000, description="Embedded queue: receives before a job is a dead letter"
    )

    @field_validator("summary_api_key")
    @classmethod
    def _is_a_header(cls, key: SecretStr) -> SecretStr:
        text = key.get_secret_value()
        if not text.isascii() or not text.isprintable() or " " in text:
            raise ValueError("a key has printable ASCII characters and no spaces")
        return key

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.summary_url and not self.summary_model:
            raise ValueError("TURNLOG_SUMMARY_URL is set and TURNLOG_SUMMARY_MODEL is not")
        if self.memory == "agentcore" and not self.memory_id:
            raise ValueError("TURNLOG_MEMORY is agentcore and TURNLOG_MEMORY_ID is not set")
        if self.memory == "webhook" and not (self.memory_webhook_url and self.memory_webhook_secret.get_secret_value()):
            raise ValueError(
                "TURNLOG_MEMORY is webhook and TURNLOG_MEMORY_WEBHOOK_URL or TURNLOG_MEMORY_WEBHOOK_SECRET is not set"
            )
        return self

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Settings from variables; an unknown ``TURNLOG_`` variable or a bad value is an `InvalidInputError` that names it."""
        found = dict(os.environ if environment is None else environment)
        named: dict[str, object] = {
            name[len(PREFIX) :].lower(): value
            for name, value in found.items()
            if name.startswith(PREFIX) and name not in CLIENT_VARIABLES and not name.startswith(_TESTS) and value != ""
        }
        for name in ("delegating_principals", "plain_iam_users", "steps"):
            if name in named:
                named[name] = tuple(part.strip() for part in str(named[name]).split(",") if part.strip())
        if "models" in named:
            named["models"] = _object(str(named["models"]))
        try:
            return cls.model_validate(named)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            variable = PREFIX + str(first["loc"][0]).upper() + ": " if first["loc"] else ""
            # The error repeats the values, and one of them is a key.
            raise InvalidInputError(f"{variable}{first['msg']}", code="invalid_settings") from None


def _object(text: str) -> object:
    """A variable's JSON, or the text where it is none: that is refused as a value of the wrong type."""
    try:
        return parse_strict_json(text)
    except MalformedError:
        return text
