"""The rules by which the subject of a certificate becomes a principal. Apache Kafka's own class is asked in interop."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.security.principals import ANONYMOUS, NoRuleApplies, Principal, PrincipalRules

DUKE = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


def test_a_principal_is_written_as_in_kafka() -> None:
    assert str(Principal("User", "CN=a")) == "User:CN=a"
    assert str(ANONYMOUS) == "User:ANONYMOUS"


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", DUKE, DUKE),
        ("", DUKE, DUKE),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", DUKE, "Duke"),
        (r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", DUKE, "duke"),
        (r"RULE:^CN=(.*?),OU=(.*?),.*$/$2-$1/U", DUKE, "SERVICEUSERS-DUKE"),
        (r"RULE:^CN=(.*?),OU=Admins.*$/$1/L, RULE:^CN=(.*?),OU=.*$/user-$1/ , DEFAULT", DUKE, "user-Duke"),
        (r"RULE:^CN=x$/y/,DEFAULT", DUKE, DUKE),
        (r"RULE:^CN=(.*?),.*$/a\/$1\$x/", DUKE, "a/Duke$x"),
        (r"RULE:^cn=(?:a|b)\/(.).*$/$10/", "cn=a/xyz", "x0"),
        (r"RULE:.*/x/", DUKE, "xx"),  # as replaceAll in Java, which matches once more at the end
        (",,DEFAULT", DUKE, DUKE),
        ("RULE:(x)/y$2/", "x", "y$2"),
    ],
)
def test_the_first_rule_that_applies_counts(rules: str, name: str, principal: str) -> None:
    assert PrincipalRules(rules).apply(name) == principal


def test_a_name_without_a_rule_has_no_principal() -> None:
    with pytest.raises(NoRuleApplies, match=f"no rule of ssl.principal.mapping.rules applies to {DUKE}"):
        PrincipalRules("RULE:^CN=x$/y/").apply(DUKE)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("default", "must be DEFAULT or RULE"),
        ("RULE:x/y", "must be DEFAULT or RULE"),
        ("RULE:x/y/Q", "must be DEFAULT or RULE"),
        ("RULE:(/y/", "not a regular expression"),
        ("RULE:x/$1/", "has 0 groups"),
        ("RULE:(x)/$/", "has 1 groups"),
        ("RULE:x/" + "y" * 70_000 + "/", "at most 65536 characters"),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused(rules: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PrincipalRules(rules)


@given(rules=st.text(alphabet="DEFAULTRULE:/\\$(),LU1a* \n"), name=st.text())
def test_any_text_is_rules_or_refused(rules: str, name: str) -> None:
    try:
        assert isinstance(PrincipalRules(rules).apply(name), str)
    except ValueError:
        pass
