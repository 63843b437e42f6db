"""The rules of OpenAI Responses: the provider's answer to each broken rule, the fix, and the source.

``answer`` quotes the provider, with ``…`` for the values. A bare "400 invalid_request_error" means that the reference demands
the shape and that we know no public thread with the provider's words.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnlog.linter.reading import Rule

MAX_ID = 64
MAX_NAME = 128

_REFERENCE = "https://platform.openai.com/docs/api-reference/responses/create"
_GITHUB = "https://github.com/"
_BAD = "400 invalid_request_error"

RULES: Mapping[str, Rule] = {
    # The list and its items.
    "items_not_list": Rule(_BAD, "Send a list of items (a bare string is one user message).", _REFERENCE),
    "items_empty": Rule(_BAD, "Send at least one item.", _REFERENCE),
    "item_not_object": Rule(_BAD, "Make each item an object with a type.", _REFERENCE),
    "item_type": Rule(
        _BAD,
        "Use an item type of this API: message, function_call, function_call_output, reasoning, …",
        _REFERENCE,
    ),
    "unknown_key": Rule(
        f"{_BAD}: Unknown parameter: 'input[…].…'.",
        "Leave the key out.",
        f"{_GITHUB}openai/openai-python/issues/2720",
    ),
    "item_id": Rule(
        f"{_BAD}: Invalid 'input[…].id': '…'. Expected an ID that contains letters, numbers, underscores, or dashes, "
        "but this value contained additional characters.",
        "Send the id the provider gave, or leave it out.",
        f"{_GITHUB}langchain-ai/langchainjs/issues/11044",
    ),
    "item_id_prefix": Rule(
        f"{_BAD}: Invalid 'input[…].id': '…'. Expected an ID that begins with '…'.",
        "Leave id out; call_id is what pairs a call with its output (msg: message, fc: call, rs: reasoning).",
        f"{_GITHUB}nodetool-ai/nodetool/pull/4252",
    ),
    "item_id_repeated": Rule(
        f"{_BAD}: Duplicate item found with id …. Remove duplicate items from your input and try again.",
        "Send each item once.",
        f"{_GITHUB}earendil-works/pi/issues/5151",
    ),
    "status_value": Rule(_BAD, "Use in_progress, completed or incomplete, or leave it out.", _REFERENCE),
    "reference_id": Rule(_BAD, "Give the reference the id of the item.", _REFERENCE),
    # Messages.
    "unknown_role": Rule(
        _BAD,
        "Use user, assistant, system or developer; an output of a tool is an item of type function_call_output.",
        _REFERENCE,
    ),
    "content_type": Rule(_BAD, "Make content a string or a list of parts.", _REFERENCE),
    "part_not_object": Rule(_BAD, "Make each part an object with a type.", _REFERENCE),
    "part_type": Rule(
        f"{_BAD}: Invalid value: '…'. Supported values are: 'output_text' and 'refusal'.",
        "assistant: output_text, refusal; others, and outputs of tools: input_text, input_image, input_file.",
        f"{_GITHUB}jeremychone/rust-genai/pull/119",
    ),
    "part_field": Rule(_BAD, "Give the part what its type needs.", _REFERENCE),
    "phase_value": Rule(_BAD, "Use commentary or final_answer, or leave it out.", _REFERENCE),
    # Calls.
    "call_id": Rule(
        f"{_BAD} (empty_string): Invalid 'input[…].call_id': empty string. Expected a string with minimum length 1, "
        "but got an empty string instead.",
        "Give the call a call_id, and its output the same.",
        f"{_GITHUB}earendil-works/pi/issues/2917",
    ),
    "call_id_too_long": Rule(
        f"{_BAD} (string_above_max_length): Invalid 'input[…].call_id': string too long. Expected a string with "
        f"maximum length {MAX_ID}, but got a string with length … instead.",
        f"Use a call_id of at most {MAX_ID} characters in the call and in its output.",
        f"{_GITHUB}openai/codex/issues/14355",
    ),
    "call_id_repeated": Rule(
        "400 of several servers of this API: Duplicate 'call_id': … (the output would answer either call)",
        "Rename one of the calls, and the output that answers it.",
        f"{_GITHUB}earendil-works/pi/issues/9057",
    ),
    "call_name": Rule(_BAD, f"Use 1 to {MAX_NAME} letters, digits, _ and -.", _REFERENCE),
    "arguments_not_string": Rule(_BAD, "Send the arguments as a JSON string (json.dumps).", _REFERENCE),
    "input_not_string": Rule(_BAD, "Send the input of a custom tool as a string.", _REFERENCE),
    "call_unanswered": Rule(
        f"{_BAD}: No tool output found for function call ….",
        "Put an output item with this call_id behind the call.",
        f"{_GITHUB}symgraph/GhidrAssist/issues/78",
    ),
    # Outputs.
    "orphan_output": Rule(
        f"{_BAD}: No tool call found for function call output with call_id ….",
        "Put it behind its call, or drop it.",
        f"{_GITHUB}continuedev/continue/issues/10092",
    ),
    "output_kind": Rule(
        _BAD,
        "Answer a function_call with a function_call_output, a custom_tool_call with a custom_tool_call_output.",
        _REFERENCE,
    ),
    "second_output": Rule(
        "400 of several servers of this API: Duplicate function_call_output for call_id …",
        "Keep one output for each call.",
        f"{_GITHUB}NousResearch/hermes-agent/pull/111443",
    ),
    "output_type": Rule(_BAD, "Make output a string or a list of parts.", _REFERENCE),
    # Reasoning.
    "reasoning_summary": Rule(_BAD, "Send summary, a list of {type: summary_text, text}; it may be empty.", _REFERENCE),
    "reasoning_content": Rule(
        _BAD, "Make content a list of {type: reasoning_text, text}, or leave it out.", _REFERENCE
    ),
    "reasoning_encrypted": Rule(_BAD, "Make encrypted_content a string, or leave it out.", _REFERENCE),
    "reasoning_alone": Rule(
        f"{_BAD}: Item 'rs_…' of type 'reasoning' was provided without its required following item.",
        "Send the item that followed it (a message of the assistant or a call), or drop the reasoning.",
        f"{_GITHUB}openai/openai-node/issues/1567",
    ),
}
