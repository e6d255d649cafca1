// Prints as JSON which pages of a site the search finds for each query, best first: node search.js SITE QUERY...
// It runs the site's own scripts, which expect a page around them.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [site, ...queries] = process.argv.slice(2);
const document = { documentElement: { dataset: {} }, addEventListener() {}, getElementById: () => null };
const page = { document, console, _: (text) => text, _ready() {}, SPHINX_HIGHLIGHT_ENABLED: false };
page.window = page;
vm.createContext(page);
for (const script of ["_static/documentation_options.js", "_static/language_data.js", "_static/searchtools.js", "searchindex.js"]) {
  vm.runInContext(fs.readFileSync(path.join(site, script), "utf8"), page);
}
page.queries = queries;
// Results come worst first.
const find = "queries.map((query) => Search._performSearch(...Search._parseQuery(query)).reverse().map((each) => each[0]))";
console.log(JSON.stringify(vm.runInContext(find, page)));
