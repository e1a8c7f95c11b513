// @ts-check
// Numbers, times and names as people read them. An unknown figure is "unknown", never 0.

const UNKNOWN = "unknown";
const grouped = new Intl.NumberFormat("en-US");

/** @param {number | null | undefined} value */
export const integer = (value) => (value == null ? UNKNOWN : grouped.format(Math.round(value)));

/** A number of things. @param {number | null | undefined} value @param {string} one @param {string} [more] */
export const count = (value, one, more = `${one}s`) => `${integer(value)} ${value === 1 ? one : more}`;

/** @param {number | null | undefined} value */
export function short(value) {
  if (value == null) return UNKNOWN;
  if (value < 10_000) return grouped.format(Math.round(value));
  if (value < 1_000_000) return `${(value / 1000).toFixed(1)}k`;
  return `${(value / 1_000_000).toFixed(2)}M`;
}

/** @param {number | null | undefined} value */
export function money(value) {
  if (value == null) return UNKNOWN;
  if (value === 0) return "$0";
  return value >= 0.1 ? `$${value.toFixed(2)}` : `$${value.toFixed(4)}`;
}

/** @param {number | null | undefined} value */
export function seconds(value) {
  if (value == null) return UNKNOWN;
  if (value < 10) return `${value.toFixed(value < 1 ? 2 : 1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

/** @param {number | null | undefined} part @param {number | null | undefined} all */
export const percent = (part, all) => (part == null || !all ? UNKNOWN : `${Math.round((100 * part) / all)}%`);

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (value == null) return UNKNOWN;
  if (value < 10_000) return `${grouped.format(value)} B`;
  return value < 1_000_000 ? `${(value / 1000).toFixed(1)} KB` : `${(value / 1_000_000).toFixed(1)} MB`;
}

/** @param {string | number | null | undefined} value */
const timeOf = (value) => (value && !Number.isNaN(+new Date(value)) ? new Date(value) : null);

/** The time of day. @param {string | number | null | undefined} value */
export const clock = (value) => timeOf(value)?.toLocaleTimeString("en-GB") ?? "";

/** The day in words. @param {string | number | null | undefined} value */
export const day = (value) => timeOf(value)?.toLocaleDateString("en-GB", { weekday: "long", day: "numeric", month: "long", year: "numeric" }) ?? "";

/** The day and the time. @param {string | number | null | undefined} value */
export const moment = (value) => timeOf(value)?.toLocaleString("en-GB", { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" }) ?? "";

/** @param {string | null | undefined} value */
export function since(value) {
  if (!value) return UNKNOWN;
  const time = new Date(value);
  const age = (Date.now() - +time) / 1000;
  if (age < 60) return "now";
  if (age < 3600) return `${Math.floor(age / 60)} min ago`;
  if (age < 24 * 3600) return `${Math.floor(age / 3600)} h ago`;
  const date = time.toLocaleDateString("en-GB", { weekday: "short", day: "numeric", month: "short" });
  return `${date}, ${time.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })}`;
}

const PROVIDERS = ["anthropic", "openai", "google", "bedrock", "local"];

/** @param {string | null | undefined} model a name as provider:model */
export function provider(model) {
  const name = (model ?? "").split(":")[0];
  if (name.startsWith("openai") || name === "azure") return "openai";
  if (name === "vertex" || name === "gemini") return "google";
  return PROVIDERS.includes(name) ? name : "other";
}

/** @param {string | null | undefined} model */
export const letter = (model) => (([...(model ?? "?")].find((sign) => /\p{L}/u.test(sign)) ?? "?").toUpperCase());

/** @param {string | null | undefined} model the part after the provider */
export const modelName = (model) => (model ? model.slice(model.indexOf(":") + 1) : "unknown model");
