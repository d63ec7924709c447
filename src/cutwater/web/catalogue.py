"""The models that a page may plan for: the zoo by name, saved profiles of one folder, what the owner gave.

A request can name a model but never code: no "package.module:function", no path.
"""

from collections.abc import Mapping
from functools import lru_cache
from threading import Lock
from typing import Any

from cutwater.base.errors import CutwaterError, ModelError, ScenarioError, suggest
from cutwater.codec.registry import CODECS
from cutwater.plan.session import Session, Wires
from cutwater.profile.cache import profile_of
from cutwater.profile.values import FORMAT, Profile
from cutwater.runs.confined import Folder
from cutwater.scenario.file import Scenario, counted_by
from cutwater.scenario.sections import ModelSpec

ZOO = (
    "cnn",
    "efficientnet_v2_l",
    "efficientnet_v2_m",
    "efficientnet_v2_s",
    "mlp",
    "resnet18",
    "resnet34",
    "resnet50",
    "text_transformer",
    "vit_tiny",
)
"""Written out so that the page opens without importing torch; a test holds it against the zoo."""
GIVEN = "given"
"""What a page calls the model of the scenario it was started with, if that is not one of the zoo."""
MOST_PROFILES = 200
_profile_of = lru_cache(maxsize=64)(profile_of)


class Catalogue:
    """Profiles by what a page asks for; those of zoo models are counted once and kept."""

    def __init__(self, profiles: Folder | None = None, given: Scenario | None = None) -> None:
        self._folder, self._given, self._counting = profiles, given, Lock()

    @property
    def given(self) -> Mapping[str, Any] | None:
        """The [model] table or profile key of the owner's scenario, where only the owner may name it."""
        if self._given is None:
            return None
        model = self._given.model
        if model is None:
            return {"profile": str(self._given.profile_path)}
        return None if model.name in ZOO and not model.options else {"model": model.given}

    def profiles(self) -> list[str]:
        """The saved profiles that can be chosen."""
        if self._folder is None:
            return []
        names = [entry.name for entry in self._folder.entries() if entry.name.endswith(".json")][
            :MOST_PROFILES
        ]
        return [name for name in names if self._is_profile(name)]

    def _is_profile(self, name: str) -> bool:
        try:
            found = None if self._folder is None else self._folder.json(name)
        except CutwaterError:  # a symbolic link, say
            return False
        return isinstance(found, dict) and found.get("format") == FORMAT

    def check(self, model: Mapping[str, Any]) -> None:
        """Refuse a [model] table that only the owner of this machine may use."""
        name = model.get("name")
        if isinstance(name, str) and name not in ZOO:
            raise ModelError(
                f"model {name!r} is not one that this page may run; {suggest(name, ZOO)}; your own model "
                "comes in as a profile: cutwater profile package.module:function --out FILE.json"
            )
        if model.get("options"):
            raise ModelError(
                "a page takes no options of a model: save a profile with them "
                "(cutwater profile NAME --option … --out FILE.json) and choose it"
            )

    @property
    def codecs(self) -> tuple[str, ...]:
        """Those that come with Cutwater, and the owner's own."""
        own = () if self._given is None else (*self._given.wires.up, *self._given.wires.down)
        return tuple(dict.fromkeys((*CODECS, *own)))

    def check_codecs(self, wires: Wires) -> None:
        """Refuse a codec that only the owner of this machine may load."""
        for name in (*wires.up, *wires.down):
            if name not in self.codecs:
                raise ScenarioError(
                    f"codec {name!r} is not one that this page may run: {suggest(name, self.codecs)}; your "
                    "own can be opened from the command line"
                )

    def counted(self, spec: ModelSpec, session: Session) -> Profile:
        """The profile of a zoo model."""
        with self._counting:  # two drags must not count the same model twice
            try:
                return _profile_of(spec.name, **counted_by(spec, session))
            except CutwaterError:
                raise
            except Exception as error:
                raise ModelError(
                    f"{spec.name} with input {spec.input!r} can't be profiled ({type(error).__name__}): "
                    "try another input"
                ) from error

    def saved(self, name: object) -> Profile:
        """A saved profile by its name in the folder, or the owner's."""
        if name == GIVEN and self.given is not None and self._given is not None:
            return self._given.profile
        if not isinstance(name, str) or self._folder is None or name not in self.profiles():
            known = ", ".join(self.profiles()) or "none (start with --profiles DIR to offer some)"
            raise ScenarioError(f"there is no saved profile {name!r} here: known are {known}")
        return Profile.from_json(self._folder.json(name), name)
