"""The rules of Anthropic Messages: the provider's answer to each broken rule, the fix, and the source.

``answer`` quotes the provider, with ``…`` for the values. A bare "400 invalid_request_error" means that the reference demands
the shape and that we know no public thread with the provider's words.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnlog.linter.rules import Rule

MAX_NAME = 200
MAX_BREAKPOINTS = 4
MAX_IMAGES, MANY_IMAGES = 100, 20
MAX_SIDE, MAX_MANY_SIDE = 8_000, 2_000
MAX_IMAGE_CHARS, MAX_REQUEST_CHARS = 10_000_000, 32_000_000

_REFERENCE = "https://platform.claude.com/docs/en/api/messages/create"
_HANDLE = "https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls"
_SYSTEM = "https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages"
_VERSION = "https://platform.claude.com/docs/en/api/migration-2026-10-21"
_VISION = "https://platform.claude.com/docs/en/build-with-claude/vision"
_COMPACTION = "https://platform.claude.com/docs/en/build-with-claude/compaction"
_GITHUB = "https://github.com/"
_CLAUDE_CODE = f"{_GITHUB}anthropics/claude-code/issues/"
_BAD = "400 invalid_request_error"

RULES: Mapping[str, Rule] = {
    # The list and its messages.
    "messages_not_list": Rule(_BAD, "Send a list of message objects.", _REFERENCE),
    "messages_empty": Rule(_BAD, "Send at least one message.", _REFERENCE),
    "too_many_messages": Rule(
        f"{_BAD} (the reference: There is a limit of 100,000 messages in a single request.)",
        "Send fewer messages.",
        _REFERENCE,
    ),
    "message_not_object": Rule(_BAD, "Make each message an object with role and content.", _REFERENCE),
    "unknown_key": Rule(
        f"{_BAD}: messages.….…: Extra inputs are not permitted",
        "Leave the key out.",
        f"{_GITHUB}theopenco/llmgateway/pull/2068",
    ),
    "lone_surrogate": Rule(
        f"{_BAD}: The request body is not valid JSON: no low surrogate in string: …",
        "Put the whole character, or U+FFFD, in its place.",
        f"{_CLAUDE_CODE}2108",
    ),
    "unknown_role": Rule(_BAD, "Use user or assistant; the system prompt is the field system.", _REFERENCE),
    "system_role": Rule(
        f"{_BAD}: role 'system' is not supported on this model",
        "Put the text into the field system, or into a user message.",
        f"{_CLAUDE_CODE}61242",
    ),
    "system_misplaced": Rule(
        f"{_BAD}: messages.…: role 'system' must follow a 'user' message or an 'assistant' message ending in a server "
        "tool result | role 'system' must precede an 'assistant' message or end the array | use the top-level "
        "'system' parameter for the initial system prompt",
        "Put it behind a user turn and before an assistant turn or the end; the first one into the field system.",
        _SYSTEM,
    ),
    "system_block": Rule(
        f"{_BAD}: messages.…: role 'system' supports text, tool_addition, and tool_removal blocks only",
        "Keep to text, or send the block in a user message.",
        _SYSTEM,
    ),
    "first_not_user": Rule(
        f'{_BAD}: messages: first message must use the "user" role (some hosts; the API itself has taken it since late 2024)',
        "Start with a user message.",
        f"{_GITHUB}anthropics/anthropic-sdk-typescript/issues/622",
    ),
    "ends_on_assistant": Rule(
        f"{_BAD}: This model does not support assistant message prefill. The conversation must end with a user "
        "message.",
        "End with a user message.",
        "https://platform.claude.com/docs/en/api/errors#prefill-not-supported",
    ),
    "trailing_whitespace": Rule(
        f"{_BAD}: messages: final assistant content cannot end with trailing whitespace",
        "Strip the end of the text.",
        f"{_GITHUB}langchain-ai/langchain/issues/35071",
    ),
    # Content and its blocks.
    "content_type": Rule(_BAD, "Make content a string or a list of blocks.", _REFERENCE),
    "content_empty": Rule(
        f"{_BAD}: messages.…: all messages must have non-empty content except for the optional final assistant "
        "message | messages.…: system content must contain at least one block",
        "Leave the message out, or say that it is empty.",
        f"{_CLAUDE_CODE}6774",
    ),
    "block_not_object": Rule(_BAD, "Make each block an object with a type.", _REFERENCE),
    "block_type": Rule(_BAD, "Set type to a block type of this API: text, image, document, tool_use, …", _REFERENCE),
    "compaction_misplaced": Rule(
        "400 compaction_block_misplaced: `compaction` block must be sent first, in place of the messages it summarizes; "
        "remove those messages",
        "Begin the first message with the newest signed compaction block; leave out what it summarizes and older ones.",
        f"{_COMPACTION}-on-demand",
    ),
    "compaction_blank": Rule(
        f"{_BAD} (the SDK: Empty string content is not allowed.)",
        "Send the block as it was returned, or leave it out.",
        _COMPACTION,
    ),
    "block_field": Rule(
        f"{_BAD}: messages.….content.….….…: Field required",
        "Give the block what its type needs.",
        f"{_GITHUB}LibreChat-AI/agents/pull/279",
    ),
    "block_wrong_role": Rule(
        f"{_BAD}: messages.…: `tool_use` blocks can only be in `assistant` messages | `tool_result` blocks can only "
        "be in `user` messages",
        "Calls and thinking go to an assistant message, results to a user message.",
        f"{_GITHUB}microsoft/agent-framework/issues/4328",
    ),
    "text_blank": Rule(
        f"{_BAD}: messages: text content blocks must be non-empty | text content blocks must contain non-whitespace "
        "text",
        "Leave the block out, or say that it is empty.",
        f"{_CLAUDE_CODE}23440",
    ),
    "citations_in_user": Rule(
        f"{_BAD} (API version 2026-10-21)", "Leave citations out of the text blocks of a user message.", _VERSION
    ),
    "document_in_assistant": Rule(f"{_BAD} (API version 2026-10-21)", "Send it in a user message.", _VERSION),
    "source_type": Rule(_BAD, "Use base64, url or file; for a document text and content too.", _REFERENCE),
    "source_field": Rule(_BAD, "Give the source what its type needs: data, url, file_id or content.", _REFERENCE),
    "media_type": Rule(
        f"{_BAD}: messages.….content.….image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', "
        "'image/gif' or 'image/webp'",
        "Convert the image to one of these; a document is application/pdf (base64) or text/plain (text).",
        f"{_CLAUDE_CODE}8184",
    ),
    "image_data": Rule(
        f"{_BAD}: messages.….content.….image.source.base64.data: Image does not match the provided media type image/…",
        "Send the image's own bytes as base64, and the type that they have.",
        f"{_CLAUDE_CODE}15746",
    ),
    "image_bytes": Rule(
        f"{_BAD}: messages.….content.….image.source.base64: image exceeds … maximum",
        f"Send at most {MAX_IMAGE_CHARS} characters of base64 (on Amazon Bedrock and Google Cloud half of it).",
        _VISION,
    ),
    "image_pixels": Rule(
        f"{_BAD}: messages.….content.….image.source.base64.data: At least one of the image dimensions exceed max allowed "
        f"size: {MAX_SIDE} pixels",
        f"Scale the image to at most {MAX_SIDE} pixels a side.",
        f"{_CLAUDE_CODE}4778",
    ),
    "many_images_pixels": Rule(
        f"{_BAD}: messages.….content.….image.source.base64.data: At least one of the image dimensions exceed max allowed "
        f"size for many-image requests: {MAX_MANY_SIDE} pixels",
        f"Send at most {MANY_IMAGES} images, or scale each to at most {MAX_MANY_SIDE} pixels a side.",
        f"{_CLAUDE_CODE}21900",
    ),
    "too_many_images": Rule(
        f"{_BAD} (the guide: {MAX_IMAGES} per request for models with a 200k-token context window, 600 for all others)",
        "Send fewer images, the newest.",
        _VISION,
    ),
    "request_bytes": Rule(
        "413 request_too_large: Request exceeds the maximum size",
        f"Send at most {MAX_REQUEST_CHARS} bytes; upload files and name their file_id.",
        "https://platform.claude.com/docs/en/api/errors",
    ),
    "cache_control": Rule(_BAD, "Send {type: ephemeral, ttl: 5m or 1h (may lack)}, or leave it out.", _REFERENCE),
    "breakpoint_order": Rule(
        f"{_BAD}: messages.….content.….cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' "
        "cache_control block.",
        "Put those of an hour first, in the order tools, system, messages.",
        f"{_GITHUB}cnighswonger/claude-code-cache-fix/issues/44",
    ),
    "too_many_breakpoints": Rule(
        f"{_BAD}: A maximum of 4 blocks with cache_control may be provided. Found ….",
        f"Keep at most {MAX_BREAKPOINTS}, those of system and tools counted.",
        f"{_GITHUB}tghamm/Anthropic.SDK/issues/50",
    ),
    # Thinking.
    "thinking_signature": Rule(
        f"{_BAD}: messages.….content.….thinking.signature: Field required",
        "Send the signature that came with the block, or leave the block out.",
        f"{_GITHUB}justlovemaki/AIClient2API/issues/437",
    ),
    "thinking_not_first": Rule(
        f"{_BAD}: messages.….content.0: If an assistant message contains any thinking blocks, the first block must be "
        "`thinking` or `redacted_thinking`. Found `…`.",
        "Put the thinking first, or leave it out.",
        f"{_CLAUDE_CODE}20705",
    ),
    "thinking_last": Rule(
        f"{_BAD}: messages.…: The final block in an assistant message cannot be `thinking`.",
        "Send what followed the thinking, or leave the message out.",
        f"{_GITHUB}tailcallhq/forgecode/issues/2107",
    ),
    # Calls.
    "call_id": Rule(
        f"{_BAD}: messages.….content.….tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        "Use letters, digits, _ and -, in the call and in its result.",
        f"{_GITHUB}maximhq/bifrost/issues/5097",
    ),
    "call_id_repeated": Rule(
        f"{_BAD}: messages.….content.…: `tool_use` ids must be unique",
        "Rename one of the calls, and the result that answers it.",
        f"{_GITHUB}anomalyco/opencode/issues/1279",
    ),
    "call_name": Rule(
        f"{_BAD}: messages.….content.….tool_use.name: String should have at most {MAX_NAME} characters | String "
        "should match pattern '^[a-zA-Z0-9_-]{1,…}$'",
        f"Use 1 to {MAX_NAME} letters, digits, _ and - (a tool's own name: at most 128).",
        f"{_CLAUDE_CODE}2673",
    ),
    "input_not_object": Rule(
        f"{_BAD}: messages.….content.….tool_use.input: Input should be a valid dictionary",
        "Send the arguments as an object.",
        f"{_GITHUB}anthropics/anthropic-sdk-typescript/issues/648",
    ),
    "call_unanswered": Rule(
        f"{_BAD}: messages.…: `tool_use` ids were found without `tool_result` blocks immediately after: …. Each "
        "`tool_use` block must have a corresponding `tool_result` block in the next message.",
        "Put a tool_result with this id at the start of the next user message.",
        f"{_CLAUDE_CODE}5060",
    ),
    # Results.
    "result_id": Rule(
        f"{_BAD}: messages.….content.….tool_result.tool_use_id: Field required | String should match pattern "
        "'^[a-zA-Z0-9_-]+$'",
        "Set tool_use_id to the id of the call that is answered.",
        f"{_GITHUB}maximhq/bifrost/issues/5097",
    ),
    "result_unknown": Rule(
        f"{_BAD}: messages.….content.…: unexpected `tool_use_id` found in `tool_result` blocks: …. Each `tool_result` "
        "block must have a corresponding `tool_use` block in the previous message.",
        "Move it to the user message behind the call, or drop it.",
        f"{_CLAUDE_CODE}13460",
    ),
    "second_result": Rule(
        f"{_BAD}: messages.….content.…: each tool_use must have a single result. Found multiple `tool_result` blocks "
        "with id: …",
        "Keep one tool_result for each call.",
        f"{_GITHUB}BerriAI/litellm/pull/23104",
    ),
    "result_after_content": Rule(
        f"{_BAD}: tool_use ids were found without tool_result blocks immediately after (the guide: tool_result blocks "
        "come first in the content array, text after all of them)",
        "Put the results before anything else of the user turn.",
        _HANDLE,
    ),
    "results_split": Rule(
        f"{_BAD}: tool_use ids were found without tool_result blocks immediately after (some hosts; the guide calls "
        "it wrong, as it teaches the model not to call in parallel)",
        "Put all results of a turn into one user message.",
        f"{_GITHUB}rowboatlabs/rowboat/pull/378",
    ),
    "result_content": Rule(_BAD, "Make content a string, a list of blocks, or leave it out.", _REFERENCE),
    "result_block_type": Rule(
        _BAD, "Keep to text, image, document, search_result, tool_reference and browser_state.", _REFERENCE
    ),
    "is_error_type": Rule(_BAD, "Make is_error true or false, or leave it out.", _REFERENCE),
    "error_empty": Rule(
        f"{_BAD}: messages.….content.….tool_result: content cannot be empty if `is_error` is true",
        "Say what went wrong.",
        f"{_GITHUB}jlevy/markform/issues/153",
    ),
    "error_not_text": Rule(
        f"{_BAD}: messages.….content.….tool_result: all content must be type `text` if `is_error` is true",
        "Say in a text what went wrong, and leave is_error out.",
        f"{_GITHUB}vellum-ai/vellum-assistant/pull/18387",
    ),
    "server_call_unanswered": Rule(
        f"{_BAD}: `…` tool use with id `…` was found without a corresponding `…_tool_result` block",
        "Keep the call with its result, or drop both; before the next user message, continue the turn.",
        "https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons",
    ),
    "server_result_unknown": Rule(
        f"{_BAD}: messages.….content.…: unexpected `tool_use_id` found in `…` blocks: …. Each `…` block must have a "
        "corresponding `server_tool_use` block before it.",
        "Keep the server_tool_use with its result, or drop both.",
        f"{_CLAUDE_CODE}64383",
    ),
}
