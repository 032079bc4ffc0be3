"""The Debian packages whose texts train, choose and measure."""

from __future__ import annotations

MANUAL_LANGUAGES = ("de", "es", "fr", "it", "ja", "nl", "pl", "pt-br", "ru", "zh")
ENGLISH_MANUALS = ("manpages", "manpages-dev", "coreutils", "util-linux", "findutils", "systemd")
ENGLISH_MANUALS += ("procps", "grep", "sed", "tar", "bash", "cron")
"""Where the translated pages have their originals. `apt` and `dpkg` are left out on purpose: their
matter is what the second evaluation domain is about."""
WITHOUT_DEVELOPER_PAGES = {"zh"}
"""One package holds all sections."""
MANUALS = (
    *ENGLISH_MANUALS,
    *(f"manpages-{lang}" for lang in MANUAL_LANGUAGES),
    *(f"manpages-{lang}-dev" for lang in MANUAL_LANGUAGES if lang not in WITHOUT_DEVELOPER_PAGES),
)
REFERENCE_LANGUAGES = ("de", "en", "es", "fr", "it", "ja", "pt-br", "zh-cn")
FAQ_LANGUAGES = ("de", "fr", "it", "ja", "ko", "nl", "pt", "ru", "zh-cn")
DEVELOPER_LANGUAGES = ("de", "fr", "it", "ja", "ru")
GUIDES = (
    *(f"debian-reference-{lang}" for lang in REFERENCE_LANGUAGES),
    "debian-faq",
    *(f"debian-faq-{lang}" for lang in FAQ_LANGUAGES),
    "developers-reference",
    *(f"developers-reference-{lang}" for lang in DEVELOPER_LANGUAGES),
)
"""Validation only: head and hybrid are chosen on them, so they prove nothing."""
OFFICE_LANGUAGES = ("de", "en-us", "es", "fr", "it", "ja", "nl", "pl", "pt-br", "ru", "zh-cn")
OFFICE = tuple(f"libreoffice-help-{lang}" for lang in OFFICE_LANGUAGES)
"""Natural language, full sentences, another matter than the guides: for training."""
MAINTAINER_LANGUAGES = ("de", "es", "fr", "it", "ja", "ru", "zh-cn")
IMAGE_LANGUAGES = ("de", "en", "es", "fr", "it", "ja", "ko", "nl", "pt", "ru", "zh-cn")
HANDBOOKS = (
    "maint-guide",
    *(f"maint-guide-{lang}" for lang in MAINTAINER_LANGUAGES),
    *(f"gimp-help-{lang}" for lang in IMAGE_LANGUAGES),
)
"""Prose about packaging and about pictures: for training."""
INSTALLATION = ("installation-guide-amd64",)
ADMINISTRATION = ("debian-handbook",)
"""For the last measurement only: no head and no hybrid was ever chosen on these two."""
