// Reads lines of [{name, html}] from standard input and answers each with a line of [problem]. The argument is the folder of the packages.
"use strict";
const { createRequire } = require("node:module");
const { createInterface } = require("node:readline");
const { HtmlValidate, StaticConfigLoader } = createRequire(process.argv[2] + "/")("html-validate");

const validator = new HtmlValidate(
  new StaticConfigLoader({
    root: true,
    extends: ["html-validate:standard", "html-validate:a11y", "html-validate:document"],
    rules: {
      "doctype-style": "off",
      "long-title": "off",
      "no-inline-style": "error",
      "prefer-native-element": ["error", { exclude: ["region"] }], // a scrolling part is a region, not a section of the document
      "no-raw-characters": "off",
      "no-trailing-whitespace": "off",
      "void-style": "off",
      "require-sri": "off",
    },
  }),
);
(async () => {
  for await (const documents of createInterface({ input: process.stdin })) {
    const problems = [];
    for (const page of JSON.parse(documents)) {
      const report = await validator.validateString(page.html, page.name);
      for (const result of report.results) {
        for (const m of result.messages) {
          const line = page.html.split("\n")[m.line - 1] || "";
          problems.push(`${page.name}: ${m.ruleId}: ${m.message}: ${line.slice(Math.max(0, m.column - 30), m.column + 90).trim()}`);
        }
      }
    }
    console.log(JSON.stringify(problems));
  }
})();
