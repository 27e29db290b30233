import bash from 'highlight.js/lib/languages/bash';
import css from 'highlight.js/lib/languages/css';
import diff from 'highlight.js/lib/languages/diff';
import go from 'highlight.js/lib/languages/go';
import java from 'highlight.js/lib/languages/java';
import javascript from 'highlight.js/lib/languages/javascript';
import json from 'highlight.js/lib/languages/json';
import markdown from 'highlight.js/lib/languages/markdown';
import python from 'highlight.js/lib/languages/python';
import ruby from 'highlight.js/lib/languages/ruby';
import rust from 'highlight.js/lib/languages/rust';
import sql from 'highlight.js/lib/languages/sql';
import typescript from 'highlight.js/lib/languages/typescript';
import xml from 'highlight.js/lib/languages/xml';
import yaml from 'highlight.js/lib/languages/yaml';
import { createLowlight } from 'lowlight';

/** Loaded on the first closed code block, not with the page. */

const lowlight = createLowlight({
  bash, css, diff, go, java, javascript, json, markdown, python, ruby, rust, sql, typescript, xml, yaml,
});

export type HighlightTree = ReturnType<typeof lowlight.highlight>;

/** The coloured tree of the code; null for a language that is not known. */
export function highlight(code: string, language: string): HighlightTree | null {
  return lowlight.registered(language) ? lowlight.highlight(language, code) : null;
}
