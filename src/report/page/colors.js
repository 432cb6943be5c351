// -------------------------------------------------------------------------------------------------------------- colours
// From a weight to a colour. Lightness alone carries the order, evenly (in OKLab), so that it survives colour blindness and print; hue helps.

// Lightness, chroma and hue (degrees) at even steps from 0 to the largest weight.
const PALETTES = {
  light: [[0.975, 0.008, 95], [0.87, 0.065, 170], [0.74, 0.095, 205], [0.59, 0.115, 240], [0.44, 0.125, 268], [0.27, 0.085, 285]],
  dark: [[0.225, 0.018, 265], [0.40, 0.105, 278], [0.55, 0.125, 250], [0.69, 0.115, 212], [0.83, 0.12, 165], [0.96, 0.09, 105]],
};
const LEVELS = 256;

function srgbOfOklch([lightness, chroma, hue]) {
  const a = chroma * Math.cos(hue * Math.PI / 180), b = chroma * Math.sin(hue * Math.PI / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3;
  const linear = [4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
                  -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
                  -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s];
  return linear.map(x => {
    const encoded = x <= 0.0031308 ? 12.92 * x : 1.055 * x ** (1 / 2.4) - 0.055;
    return Math.round(255 * Math.min(1, Math.max(0, encoded)));
  });
}

class Colors {
  constructor(theme, scale) {
    this.scale = scale;
    const stops = PALETTES[theme];
    this.levels = Array.from({length: LEVELS}, (_, level) => {
      const at = level / (LEVELS - 1) * (stops.length - 1), below = Math.min(Math.floor(at), stops.length - 2);
      const lch = stops[below].map((x, n) => x + (at - below) * (stops[below + 1][n] - x));
      return {rgb: srgbOfOklch(lch), lightness: lch[0]};
    });
    // Pixels as ImageData holds them: red is the lowest byte.
    this.pixels = Uint32Array.from(this.levels, ({rgb: [r, g, b]}) => (255 << 24 | b << 16 | g << 8 | r) >>> 0);
    this.nanPixel = theme === "light" ? 0xFF6C6CD9 : 0xFF5A5AC8;
  }

  // 0…1 for a share 0…1 of the largest weight.
  shade(share) {
    if (this.scale === "linear") return share;
    if (this.scale === "root") return Math.sqrt(share);
    return share > 0 ? Math.max(0, 1 + Math.log10(share) / 4) : 0;  // four decades
  }
  // The share that has this shade.
  share(shade) { return this.scale === "linear" ? shade : this.scale === "root" ? shade ** 2 : 10 ** (4 * (shade - 1)); }

  level(share) { return Math.round(this.shade(Math.min(1, Math.max(0, share))) * (LEVELS - 1)); }
  // Behind words the lower part of the palette is enough, and calmer.
  css(share) {
    if (!(share > 0.002)) return {background: "", ink: ""};
    const {rgb, lightness} = this.levels[Math.round(0.6 * this.level(share))];
    return {background: `rgb(${rgb})`, ink: lightness > 0.62 ? "#17191d" : "#f6f5f1"};
  }

  // An image of values [rows, columns]; what is not visible stays transparent.
  image(values, rows, columns, largest) {
    const image = new ImageData(columns, rows), pixels = new Uint32Array(image.data.buffer);
    const factor = largest > 0 ? 1 / largest : 0;
    for (let n = 0; n < pixels.length; ++n) {
      const value = values[n];
      if (value >= 0) pixels[n] = this.pixels[this.level(value * factor)];
      else if (value !== NOT_VISIBLE) pixels[n] = this.nanPixel;
    }
    const canvas = new OffscreenCanvas(columns, rows);
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  }
}
