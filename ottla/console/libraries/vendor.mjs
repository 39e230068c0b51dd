// Bundles the libraries of the console's page into `static/vendor`, with their licences. `npm ci` has checked their digests before.

import { build } from "esbuild";
import { copyFile, mkdir, readFile, rm, writeFile } from "node:fs/promises";

const target = new URL("../static/vendor/", import.meta.url);
const installed = new URL("node_modules/", import.meta.url);
const { dependencies } = JSON.parse(await readFile(new URL("package.json", import.meta.url)));

await rm(target, { recursive: true, force: true });
await mkdir(target, { recursive: true });
await build({
  entryPoints: [new URL("libraries.js", import.meta.url).pathname],
  outfile: new URL("libraries.js", target).pathname,
  bundle: true,
  charset: "utf8",
  define: { "process.env.NODE_ENV": '"production"' },
  format: "esm",
  legalComments: "none", // they are in LICENCES
  minify: true,
  target: "es2022",
});
await copyFile(new URL("@picocss/pico/css/pico.min.css", installed), new URL("pico.min.css", target));
await copyFile(new URL("uplot/dist/uPlot.min.css", installed), new URL("uPlot.min.css", target));

const parts = [];
for (const [name, version] of Object.entries(dependencies)) {
  const texts = await Promise.all(["LICENSE", "LICENSE.md"].map((file) => readFile(new URL(`${name}/${file}`, installed), "utf8").catch(() => null)));
  parts.push(`${name} ${version}\n\n${texts.find((text) => text !== null).trim()}\n`);
}
await writeFile(new URL("LICENCES", target), parts.join(`\n${"-".repeat(80)}\n\n`));
