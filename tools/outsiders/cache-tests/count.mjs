// Counts the results of http-tests/cache-tests as the suite's own pages do: `determineTestResult` of its
// test-engine/lib/results.mjs decides about each test, with its dependencies.
//
//     node count.mjs CHECKOUT RESULTS.json TITLE
//
// Prints one line for each required or optional test that did not pass, then the counts.

import fs from 'node:fs'
import path from 'node:path'
import process from 'node:process'
import { pathToFileURL } from 'node:url'

const [checkout, file, title] = process.argv.slice(2)
const load = name => import(pathToFileURL(path.resolve(checkout, name)))
const { default: suites } = await load('tests/index.mjs')
const { determineTestResult, resultTypes } = await load('test-engine/lib/results.mjs')
const results = JSON.parse(fs.readFileSync(file))
const names = new Map(Object.entries(resultTypes).map(([name, type]) => [type, name]))
const counts = {}
for (const suite of suites) {
  for (const test of suite.tests) {
    if (test.browser_only) continue
    const kind = test.kind ?? 'required'
    const came = names.get(determineTestResult(suites, test.id, results))
    const count = counts[kind] ??= { all: 0, pass: 0 }
    count.all += 1
    if (came === 'pass' || came === 'yes') {
      count.pass += 1
    } else if (kind !== 'check') {
      const why = Array.isArray(results[test.id]) ? results[test.id][1] : ''
      console.log(`${kind} ${came} ${suite.id} ${test.id}: ${why}`)
    }
  }
}
const { required, optimal, check } = counts
console.log(`${title}: checks answered with yes: ${check.pass} of ${check.all}`)
console.log(`${title}: optional: passed ${optimal.pass} of ${optimal.all}`)
console.log(`${title}: required: passed ${required.pass} of ${required.all}`)
