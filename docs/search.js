/* Ranking of search results: pages by the query's words in their titles and headings, guides before the reference.

The weights below `score` are Sphinx's own. Without `score`, all pages with the words in their text are equal, and
attributes of classes come before all of them. */
var Scorer = {
  score: ([page, title, anchor, description, score]) => {
    const stemmer = new Stemmer();
    const stems = text => splitQuery(text.toLowerCase()).map(word => stemmer.stemWord(word));
    const share = (words, found) => words.filter(found).length / Math.max(words.length, 1);
    const query = stems(new URLSearchParams(location.search).get("q") ?? "");
    const words = stems(title);
    const number = Search._index.docnames.indexOf(page);
    const inHeadings = word => [Search._index.titleterms[word] ?? []].flat().includes(number);
    const rank = score + 10 * share(query, word => words.includes(word)) + 5 * share(query, inHeadings);
    const isReference = page.startsWith("reference/") || page === "contract";
    return rank + 5 * share(words, word => query.includes(word)) - (isReference ? 10 : 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
