// The order of search results: Sphinx's own points, and what kind of page it is. All pages whose text has the words get
// the same points otherwise, and the list of changes has nearly every word.
const kinds = [
  [/^docs\/(guide\/|install$|testing$)/, 6],
  [/^(CHANGELOG|CONTRIBUTING|tests\/README|docs\/(architecture|benchmarks|robustness))$/, -4],
];

var Scorer = {
  score: ([page, , , , points]) => points + (kinds.find(([pattern]) => pattern.test(page)) ?? [null, 0])[1],
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
