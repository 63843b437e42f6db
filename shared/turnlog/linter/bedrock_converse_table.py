"""The rules of Amazon Bedrock Converse: the provider's answer to each broken rule, the fix, and the source.

``answer`` quotes the provider, with ``…`` for the values. A bare "400 ValidationException" means that the reference demands
the shape and that we know no public thread with the provider's words.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnlog.linter.rules import Rule

MAX_ID = 64
MAX_NAME = 64
MAX_DOCUMENT_NAME = 200
MAX_DOCUMENTS = 5
MAX_IMAGES = 20
MAX_CACHE_POINTS = 4
MAX_SIDE = 8_000
MAX_BYTES = {"image": 3_932_160, "document": 4_718_592}
"""Most bytes of an image (3.75 MB) and of a document (4.5 MB)."""

_API = "https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_"
_SDK = "https://github.com/boto/botocore/blob/develop/botocore/validate.py"
_GITHUB = "https://github.com/"
_BAD = "400 ValidationException"
_CLIENT = "ParamValidationError of the SDK"

RULES: Mapping[str, Rule] = {
    # The list and its messages.
    "messages_not_list": Rule(f"{_CLIENT}: Invalid type for parameter messages", "Send a list of messages.", _SDK),
    "messages_empty": Rule(_BAD, "Send at least one message.", f"{_API}Converse.html"),
    "unknown_role": Rule(_BAD, "Use user or assistant; the system prompt is the field system.", f"{_API}Message.html"),
    "system_role": Rule(_BAD, "Put the text into the field system, or into a user message.", f"{_API}Message.html"),
    "first_not_user": Rule(
        f"{_BAD}: A conversation must start with a user message. Try again with a conversation that starts with a "
        "user message.",
        "Start with a user message.",
        f"{_GITHUB}langgenius/dify/issues/12340",
    ),
    "roles_not_alternating": Rule(
        f"{_BAD}: A conversation must alternate between user and assistant roles. Make sure the conversation "
        "alternates between user and assistant roles and try again.",
        "Merge the messages of one role into one.",
        f"{_GITHUB}langchain-ai/langchain-aws/issues/130",
    ),
    "ends_on_assistant": Rule(
        f"{_BAD}: This model does not support assistant message prefill. The conversation must end with a user "
        "message.",
        "End with a user message.",
        f"{_GITHUB}XiaomiMiMo/MiMo-Code/pull/1702",
    ),
    # Shapes.
    "field_type": Rule(
        f"{_CLIENT}: Invalid type for parameter messages[…].…, value: …, type: …, valid types: …",
        "Send what the shape demands.",
        _SDK,
    ),
    "field_missing": Rule(
        f'{_CLIENT}: Missing required parameter in messages[…].…: "…"', "Send what the shape demands.", _SDK
    ),
    "unknown_key": Rule(
        f'{_CLIENT}: Unknown parameter in messages[…].…: "…", must be one of: …',
        "Leave the key out, or use one that the shape has.",
        _SDK,
    ),
    "union_members": Rule(
        f"{_CLIENT}: Invalid number of parameters set for tagged union structure …. Can only set one of the following "
        "keys: … | Must set one of the following keys for tagged union structure …",
        "Set exactly one member: one block for each thing.",
        _SDK,
    ),
    "enum_value": Rule(_BAD, "Use a value of the shape's list.", f"{_API}ContentBlock.html"),
    "s3_uri": Rule(_BAD, "Use s3://bucket/key.", f"{_API}S3Location.html"),
    # Content.
    "content_empty": Rule(
        f"{_BAD}: The content field in the Message object at messages.… is empty. Add a ContentBlock object to the "
        "content field and try again.",
        "Send at least one block, or leave the message out.",
        f"{_GITHUB}earendil-works/pi/pull/3443",
    ),
    "text_blank": Rule(
        f"{_BAD}: The text field in the ContentBlock object at messages.….content.… is blank. Add text to the text "
        "field, and try again. | text content blocks must contain non-whitespace text",
        "Leave the block out, or say that it is empty.",
        f"{_GITHUB}aws-samples/bedrock-engineer/issues/8",
    ),
    "block_wrong_role": Rule(
        f"{_BAD}: User messages cannot contain reasoning content. Please remove the reasoning content and try again. "
        "(for calls and results in the wrong role no words were found)",
        "Calls and reasoning go to an assistant message, results to a user message.",
        f"{_API}ContentBlock.html",
    ),
    "media_wrong_role": Rule(
        f"{_BAD} (the reference: You can only include images and documents if the role is user.)",
        "Send it in a user message.",
        f"{_API}Message.html",
    ),
    "too_many_images": Rule(
        f"{_BAD} (the reference: You can include up to {MAX_IMAGES} images.)",
        "Send fewer images in the message.",
        f"{_API}Message.html",
    ),
    "too_many_documents": Rule(
        f"{_BAD} (the reference: You can include up to five documents.)",
        "Send fewer documents in the message.",
        f"{_GITHUB}aws-samples/generative-ai-use-cases/issues/1685",
    ),
    "image_data": Rule(
        f"{_BAD} of Claude: Image does not match the provided media type image/…",
        "Send the image's own bytes, and the format that they have.",
        f"{_GITHUB}anthropics/claude-code/issues/15746",
    ),
    "media_bytes": Rule(
        f"{_BAD} (the reference: Each image's size must be no more than 3.75 MB, each document's no more than 4.5 MB.)",
        "Send a smaller file, or an S3 address.",
        f"{_API}Message.html",
    ),
    "image_pixels": Rule(
        f"{_BAD} (the reference: Each image's height and width must be no more than {MAX_SIDE} px.)",
        f"Scale the image to at most {MAX_SIDE} pixels a side.",
        f"{_API}Message.html",
    ),
    "document_without_text": Rule(
        f"{_BAD}: A text block must be included when using documents. Add a text block and retry your request.",
        "Send a text block in the same message.",
        f"{_GITHUB}BerriAI/litellm/pull/36499",
    ),
    "document_name": Rule(
        f"{_BAD}: The document file name can only contain alphanumeric characters, whitespace characters, hyphens, "
        "parentheses, and square brackets. The name can't contain more than one consecutive whitespace character.",
        f"Use 1 to {MAX_DOCUMENT_NAME} letters, digits, single spaces, -, _, () and []; no file extension.",
        f"{_GITHUB}vercel/ai/issues/20365",
    ),
    "document_name_repeated": Rule(
        f"{_BAD}: Messages can't contain duplicate document names. Rename the document and retry your request.",
        "Give each document of the request a name of its own.",
        f"{_GITHUB}maximhq/bifrost/issues/7003",
    ),
    "breakpoint_order": Rule(
        f"{_BAD} (checkpoint TTLs must not increase across toolConfig, system and messages)",
        "Put those of an hour first.",
        f"{_GITHUB}strands-agents/sdk-python/pull/2232",
    ),
    "too_many_breakpoints": Rule(
        f"{_BAD} (the reference: Maximum number of cache checkpoints per request: {MAX_CACHE_POINTS})",
        f"Keep at most {MAX_CACHE_POINTS} cache points, those of system and tools counted.",
        "https://docs.aws.amazon.com/bedrock/latest/userguide/prompt-caching.html",
    ),
    # Calls.
    "call_id": Rule(
        f"{_BAD}: Value '…' at 'messages.….member.content.….member.toolUse.toolUseId' failed to satisfy constraint: "
        f"Member must have length less than or equal to {MAX_ID} | Member must satisfy regular expression pattern: "
        "[a-zA-Z0-9_.:-]+",
        f"Use 1 to {MAX_ID} letters, digits, _, ., : and -, in the call and in its result.",
        f"{_GITHUB}maximhq/bifrost/pull/6300",
    ),
    "call_id_repeated": Rule(
        f"{_BAD}: The toolUse blocks at messages.….content contain duplicate Ids: … (of another turn: the model's "
        "answer, e.g. tool_use ids must be unique)",
        "Rename one of the calls, and the result that answers it.",
        f"{_GITHUB}BerriAI/litellm/pull/20049",
    ),
    "call_name": Rule(
        f"{_BAD}: Value '…' at 'messages.….member.content.….member.toolUse.name' failed to satisfy constraint: Member "
        f"must have length less than or equal to {MAX_NAME} | Member must satisfy regular expression pattern: "
        "[a-zA-Z0-9_-]+",
        f"Use 1 to {MAX_NAME} letters, digits, _ and -.",
        f"{_GITHUB}openclaw/openclaw/issues/12892",
    ),
    "input_not_object": Rule(
        f"{_BAD}: The format of the value at messages.….content.….toolUse.input is invalid. Provide a json object for "
        "the field and try again.",
        "Send the arguments as an object.",
        f"{_GITHUB}vercel/ai/pull/19023",
    ),
    "call_unanswered": Rule(
        f"{_BAD}: Expected toolResult blocks at messages.….content for the following Ids: …",
        "Put a toolResult with this id into the next user message.",
        f"{_GITHUB}camel-ai/camel/issues/3954",
    ),
    # Results.
    "result_unknown": Rule(
        f"{_BAD}: The number of toolResult blocks at messages.….content exceeds the number of toolUse blocks of "
        "previous turn.",
        "Move it to the user message behind the call, or drop it.",
        f"{_GITHUB}Just-Curieous/Curie/issues/16",
    ),
    "second_result": Rule(
        f"{_BAD}: The toolResult blocks at messages.….content contain duplicate Ids: …",
        "Keep one toolResult for each call.",
        f"{_GITHUB}BerriAI/litellm/issues/20047",
    ),
    "result_after_content": Rule(
        f"{_BAD} of Claude: tool_use ids were found without tool_result blocks immediately after",
        "Put the results before anything else of the message.",
        "https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls",
    ),
    "json_not_object": Rule(
        f"{_BAD}: The format of the value at messages.….content.….toolResult.content.….json is invalid. Provide a "
        "json object for the field and try again.",
        "Send an object, or the value as text.",
        f"{_GITHUB}sigoden/aichat/pull/1550",
    ),
    "error_empty": Rule(
        f"{_BAD}: The content field at messages.….content.….toolResult cannot be empty when status value is error.",
        "Say what went wrong.",
        f"{_GITHUB}aws-samples/sample-multi-agent-orchestration-chat-on-agentcore/issues/15",
    ),
}
