"""Style and script of the documentation page. Text reaches the page as text only, never as HTML."""

STYLE = """
:root{color-scheme:light dark;--line:#8886;--soft:#8882}
body{font:16px/1.5 system-ui,sans-serif;margin:0}
main{max-width:60rem;margin:auto;padding:1rem}
details{border:1px solid var(--line);border-radius:6px;margin:.4rem 0}
summary{padding:.5rem .8rem;cursor:pointer}
details>div{padding:.2rem .8rem .8rem}
code,pre,textarea,input{font:13px/1.45 ui-monospace,monospace}
pre,textarea{background:var(--soft);padding:.6rem;border-radius:4px;overflow:auto;max-height:24rem}
textarea,input{width:100%;box-sizing:border-box;border:1px solid var(--line)}
table{border-collapse:collapse;width:100%}
td{border-top:1px solid var(--line);padding:.25rem .5rem;vertical-align:top}
.verb{display:inline-block;min-width:4.5rem;font-weight:700}
"""

SCRIPT = """
'use strict';
const main = document.getElementById('main');
const make = (tag, text, ...inner) => {
  const node = document.createElement(tag);
  if (text) node.textContent = text;
  node.append(...inner);
  return node;
};
let doc, key;

function resolve(schema) {
  if (!schema || !schema.$ref) return schema || {};
  return doc.components.schemas[schema.$ref.split('/').pop()] || {};
}
function typeOf(schema) {
  if (!schema) return 'any';
  if (schema.$ref) return schema.$ref.split('/').pop();
  if (schema.anyOf) return schema.anyOf.map(typeOf).filter(t => t !== 'null').join(' | ');
  if (schema.enum) return schema.enum.map(v => JSON.stringify(v)).join(' | ');
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === 'array') return typeOf(schema.items) + '[]';
  const low = schema.minimum ?? schema.exclusiveMinimum, high = schema.maximum;
  const span = low === undefined && high === undefined ? '' : ` ${low ?? ''} … ${high ?? ''}`;
  return (schema.type || 'any') + span;
}
function fields(schema) {
  const table = make('table');
  const named = resolve(schema);
  for (const [name, field] of Object.entries(named.properties || {})) {
    const must = (named.required || []).includes(name) ? ' (required)' : '';
    table.append(make('tr', '', make('td', '', make('code', name), make('span', must)),
      make('td', '', make('code', typeOf(field.anyOf && field.anyOf.length === 2
        ? field.anyOf.find(f => f.type !== 'null') : field))),
      make('td', field.description || '')));
  }
  return table;
}
const examples = {
  '/v1/chat/completions': {messages: [{role: 'user', content: 'Say hello.'}], max_tokens: 32},
  '/v1/completions': {prompt: 'Once upon a time', max_tokens: 32},
  '/completion': {prompt: 'Once upon a time', n_predict: 32},
  '/v1/embeddings': {input: 'hello'},
  '/v1/responses': {input: 'Say hello.', max_output_tokens: 32},
  '/v1/rerank': {query: 'Who keeps bees?', documents: ['A beekeeper.', 'A baker.']},
  '/tokenize': {content: 'hello', with_pieces: true},
  '/detokenize': {tokens: [1]},
  '/apply-template': {messages: [{role: 'user', content: 'Say hello.'}]},
};
async function send(verb, path, body, out) {
  out.textContent = '…';
  const headers = {};
  if (key.value) headers['Authorization'] = 'Bearer ' + key.value;
  if (body) headers['Content-Type'] = 'application/json';
  try {
    const answer = await fetch(path, {method: verb, headers, body: body || undefined});
    out.textContent = answer.status + '\\n';
    const reader = answer.body.getReader(), decoder = new TextDecoder();
    for (;;) {
      const {done, value} = await reader.read();
      if (done) break;
      out.textContent += decoder.decode(value, {stream: true});
    }
    try {
      const [status, ...rest] = out.textContent.split('\\n');
      out.textContent = status + '\\n' + JSON.stringify(JSON.parse(rest.join('\\n')), null, 2);
    } catch {}
  } catch (error) { out.textContent = String(error); }
}
function operation(path, verb, about) {
  const box = make('div', '', make('p', about.description || ''));
  const taken = about.requestBody && about.requestBody.content['application/json'].schema;
  if (taken) box.append(make('h4', 'Body'), fields(taken));
  const table = make('table');
  for (const [code, answer] of Object.entries(about.responses))
    table.append(make('tr', '', make('td', code), make('td', answer.description)));
  box.append(make('h4', 'Answers'), table, make('h4', 'Try it'));
  const where = make('input'), body = make('textarea'), go = make('button', 'Send');
  where.value = path;
  body.rows = 6;
  body.value = examples[path] ? JSON.stringify(examples[path], null, 2) : '';
  const out = make('pre');
  go.onclick = () => send(verb.toUpperCase(), where.value, taken && body.value, out);
  box.append(where, ...(taken ? [body] : []), go, out);
  return make('details', '', make('summary', '', Object.assign(make('span', verb.toUpperCase()),
    {className: 'verb'}), make('code', path), make('span', ' ' + about.summary)), box);
}
fetch('/openapi.json').then(r => r.json()).then(found => {
  doc = found;
  key = Object.assign(make('input'), {type: 'password', placeholder: 'API key, if one is needed'});
  main.replaceChildren(make('h1', doc.info.title + ' ' + doc.info.version),
    make('p', doc.info.description), key);
  const groups = {};
  for (const [path, verbs] of Object.entries(doc.paths))
    for (const [verb, about] of Object.entries(verbs))
      (groups[about.tags[0]] ||= []).push(operation(path, verb, about));
  for (const [tag, all] of Object.entries(groups)) main.append(make('h2', tag), ...all);
}).catch(error => { main.textContent = 'The document could not be read: ' + error; });
"""
