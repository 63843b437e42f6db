"""The rules of OpenAI Chat Completions: the provider's answer to each broken rule, the fix, and the source.

``answer`` quotes the provider, with ``…`` for the values. A bare "400 invalid_request_error" means that the reference demands
the shape and that we know no public thread with the provider's words.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnlog.linter.reading import Rule

MAX_ID = 40
MAX_NAME = 64
ROLES = frozenset({"developer", "system", "user", "assistant", "tool", "function"})

_REFERENCE = "https://platform.openai.com/docs/api-reference/chat/create"
_GITHUB = "https://github.com/"
_BAD = "400 invalid_request_error"

RULES: Mapping[str, Rule] = {
    # The list and its messages.
    "messages_not_list": Rule(_BAD, "Send a list of message objects.", _REFERENCE),
    "messages_empty": Rule(
        f"{_BAD}: Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array "
        "instead.",
        "Send at least one message.",
        f"{_GITHUB}CopilotKit/CopilotKit/issues/529",
    ),
    "message_not_object": Rule(_BAD, "Make each message an object with a role.", _REFERENCE),
    "unknown_role": Rule(_BAD, f"Use one of: {', '.join(sorted(ROLES))}.", _REFERENCE),
    "name_invalid": Rule(
        f"{_BAD}: Invalid 'messages[…].name': string does not match pattern. Expected a string that matches the "
        "pattern '^[^\\s<|\\\\/>]+$'.",
        f"Leave name out, or use 1 to {MAX_NAME} characters without white space, <, |, \\, / and >.",
        "https://community.openai.com/t/weird-regex-on-message-name-field/1356753",
    ),
    # Content.
    "content_missing": Rule(
        f"{_BAD}: Invalid value for 'content': expected a string, got null.",
        "Send content (an empty string will do); only an assistant message with calls, refusal or audio needs none.",
        f"{_GITHUB}langchain-ai/langchainjs/issues/4153",
    ),
    "content_type": Rule(_BAD, "Make content a string or, except for role function, a list of parts.", _REFERENCE),
    "content_empty_list": Rule(_BAD, "Send at least one part, or an empty string.", _REFERENCE),
    "part_not_object": Rule(_BAD, "Make each part an object with a type.", _REFERENCE),
    "part_type": Rule(
        f"{_BAD}: Invalid 'messages[…]'. Image URLs are only allowed for messages with role 'user', but this message "
        "with role '…' contains an image URL. | Invalid value: '…'. Supported values are: …",
        "user: text, image_url, input_audio, file; assistant: text, refusal; others: text. Media go to a user message.",
        f"{_GITHUB}openai/openai-node/issues/1030",
    ),
    "part_field": Rule(_BAD, "Give the part what its type needs.", _REFERENCE),
    "refusal_type": Rule(_BAD, "Make refusal a string, or leave it out.", _REFERENCE),
    "audio_type": Rule(_BAD, "Make audio an object with a string id, or leave it out.", _REFERENCE),
    # Calls.
    "tool_calls_wrong_role": Rule(_BAD, "Only an assistant message may have tool_calls.", _REFERENCE),
    "tool_calls_not_list": Rule(_BAD, "Make tool_calls a list of calls, or leave it out.", _REFERENCE),
    "tool_calls_empty": Rule(
        f"{_BAD}: Invalid 'messages[…].tool_calls': empty array. Expected an array with minimum length 1, but got an "
        "empty array instead.",
        "Leave tool_calls out when there are none.",
        f"{_GITHUB}home-assistant/core/pull/118577",
    ),
    "call_not_object": Rule(_BAD, "Make each call an object {id, type, function}.", _REFERENCE),
    "call_type": Rule(_BAD, "Set type to function (or custom).", _REFERENCE),
    "call_body": Rule(_BAD, "Send the function (name, arguments) or custom (name, input) that is called.", _REFERENCE),
    "call_name": Rule(
        f"{_BAD}: Invalid 'messages[…].tool_calls[…].function.name': string does not match pattern. Expected a string "
        "that matches the pattern '^[a-zA-Z0-9_-]+$'.",
        f"Use 1 to {MAX_NAME} characters of a-z, A-Z, 0-9, _ and -.",
        f"{_GITHUB}mcp-use/mcp-use/issues/90",
    ),
    "arguments_not_string": Rule(_BAD, "Send the arguments as a JSON string (json.dumps).", _REFERENCE),
    "input_not_string": Rule(_BAD, "Send the input of a custom tool as a string.", _REFERENCE),
    "call_id": Rule(_BAD, "Give the call an id, and its tool message the same tool_call_id.", _REFERENCE),
    "call_id_too_long": Rule(
        f"{_BAD} (string_above_max_length): Invalid 'messages[…].tool_calls[…].id': string too long. Expected a string "
        f"with maximum length {MAX_ID}, but got a string with length … instead.",
        f"Use an id of at most {MAX_ID} characters in the call and in its tool message.",
        f"{_GITHUB}agno-agi/agno/issues/5382",
    ),
    # OpenAI accepts an id that is used again in a later turn (tau-bench's runs of gpt-4o continue after one). Other
    # servers refuse it, and within one message the results collide.
    "call_id_repeated": Rule(
        "400 of several servers of this API: duplicate tool_call_id (OpenAI: seen accepted across turns)",
        "Rename one of the calls, and the tool message that answers it.",
        f"{_GITHUB}openclaw/openclaw/pull/40996",
    ),
    # Results.
    "call_unanswered": Rule(
        f"{_BAD}: An assistant message with 'tool_calls' must be followed by tool messages responding to each "
        "'tool_call_id'. The following tool_call_ids did not have response messages: …",
        "Put a tool message with this tool_call_id behind the assistant message, before anything else.",
        f"{_GITHUB}sdcb/chats/pull/132",
    ),
    "orphan_result": Rule(
        f"{_BAD}: Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
        "'tool_calls'.",
        "Move it behind the assistant message that called, with only tool messages between, or drop it.",
        f"{_GITHUB}miurla/morphic/issues/136",
    ),
    "result_id": Rule(_BAD, "Set tool_call_id to the id of the call that is answered.", _REFERENCE),
    "result_id_unknown": Rule(
        f"{_BAD}: Invalid parameter: 'tool_call_id' of '…' not found in 'tool_calls' of previous message.",
        "Set tool_call_id to an id of the assistant message before, or drop the message.",
        f"{_GITHUB}dapr/dapr-agents/issues/145",
    ),
    "second_result": Rule(
        f"{_BAD}: Invalid parameter: Duplicate value for 'tool_call_id' of '…', in messages[…] and messages[…].",
        "Keep one tool message for each call.",
        f"{_GITHUB}agno-agi/agno/issues/5116",
    ),
    # Legacy functions: a call has no id; its result is the next message, which names the function.
    "function_call_wrong_role": Rule(_BAD, "Only an assistant message may have function_call.", _REFERENCE),
    "function_call_unanswered": Rule(
        "none seen (the reference shows the pair; the model reads a call without its result)",
        "Put the function message with this name right behind the assistant message.",
        _REFERENCE,
    ),
    "orphan_function_result": Rule(
        "none seen (the reference shows the pair; the model reads a result without its call)",
        "Move it right behind the assistant message with the function_call, or drop it.",
        _REFERENCE,
    ),
    "function_result_name": Rule(
        "none seen (the reference shows the pair; the model reads the result of another function)",
        "Name the function of the function_call before.",
        _REFERENCE,
    ),
    "function_name": Rule(
        f"{_BAD}: Missing parameter 'name': messages with role 'function' must have a 'name'.",
        f"Set name to the function's name: 1 to {MAX_NAME} characters of a-z, A-Z, 0-9, _ and -.",
        f"{_GITHUB}langchain-ai/langchainjs/issues/6570",
    ),
}
