// Numbers, sizes and times as text. What is not known is a dash, never a zero.
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const whole = new Intl.NumberFormat("en");
const NONE = "–";
const LARGEST = 2 ** 62;

export const missing = (value) => value === null || value === undefined;
export const count = (value) => (missing(value) ? NONE : whole.format(value));
export const short = (value) => (missing(value) ? NONE : compact.format(value));
export const rate = (value, unit = "") => (missing(value) ? NONE : `${value < 10 && value > 0 ? value.toPrecision(2) : compact.format(Math.round(value))}${unit}/s`);
export const share = (value) => (missing(value) ? NONE : `${Math.round(value * 100)} %`);

export function bytes(value) {
  if (missing(value)) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return `${at && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
}

export function span(ms) {
  if (missing(ms)) return NONE;
  const sign = ms < 0 ? "-" : "";
  ms = Math.abs(ms);
  if (ms < 1000) return `${sign}${Math.round(ms)} ms`;
  if (ms < 60000) return `${sign}${(ms / 1000).toFixed(ms < 10000 ? 1 : 0)} s`;
  if (ms < 3600e3) return `${sign}${Math.floor(ms / 60000)} min ${Math.floor(ms / 1000) % 60} s`;
  if (ms < 86400e3) return `${sign}${Math.floor(ms / 3600e3)} h ${Math.floor(ms / 60000) % 60} min`;
  if (ms < 365 * 86400e3) return `${sign}${Math.floor(ms / 86400e3)} d ${Math.floor(ms / 3600e3) % 24} h`;
  return `${sign}${(ms / 365.25 / 86400e3).toFixed(1)} years`;
}

export function time(ms) {
  if (missing(ms)) return NONE;
  if (ms >= LARGEST) return "end of input";
  const at = new Date(ms);
  return Number.isNaN(at.getTime()) ? String(ms) : at.toISOString().replace("T", " ").slice(0, 19) + "Z";
}

export function clock(ms) {
  if (missing(ms)) return NONE;
  return new Date(ms).toISOString().slice(11, 19) + "Z";
}

export const ago = (ms, now = Date.now()) => (missing(ms) ? NONE : `${span(Math.max(0, now - ms))} ago`);

export function delay(watermark, now) {
  if (missing(watermark) || watermark >= LARGEST) return NONE;
  return span(now - watermark);
}

export const json = (value) => (missing(value) ? NONE : typeof value === "string" ? value : JSON.stringify(value));
