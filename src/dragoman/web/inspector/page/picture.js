// @ts-check
// Pictures of the record, by their address on this server. One from elsewhere is named and never fetched.
import { html, useState } from "./vendor/libraries.js";
import { address } from "./api.js";
import { Safe } from "./safetext.js";
import { bytes } from "./words.js";

/** @param {{part: any, path: string, serial: number}} given */
export function Picture({ part, path, serial }) {
  const [isBroken, setBroken] = useState(false);
  const { payload } = part;
  const inside = payload?.data?.$picture;
  const kind = payload?.mimeType ?? part.kind;
  if (!inside) {
    const where = payload?.url ?? payload?.path ?? payload?.name ?? payload?.fileId ?? "";
    return html`<p class="medium"><span class="chip plain"><${Safe} text=${kind} /></span> <${Safe} text=${String(where?.$cut?.head ?? where).slice(0, 300)} /></p>`;
  }
  if (isBroken) return html`<p class="medium"><span class="chip plain"><${Safe} text=${kind} /></span> ${bytes(inside.size)}, not drawn</p>`;
  const source = address(`${path}/entries/${serial}/picture`, { at: inside.at });
  return html`<figure class="medium"><img src=${source} alt=${`A picture of ${bytes(inside.size)} in entry ${serial}`} loading="lazy" onError=${() => setBroken(true)} />
    <figcaption class="small dim"><${Safe} text=${kind} /> ${bytes(inside.size)}</figcaption></figure>`;
}
