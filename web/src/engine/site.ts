import type { ModelPart } from "../types";

/** A model's file in the folder of the site. */
export interface SiteModel extends ModelPart {
  file: string;
  bytes: number;
}

/** `facerts.json`, which `facerts web` writes: the models, and every number that decides, as Python has them. */
export interface Site {
  schema: "facerts.web/1";
  version: string;
  runtime: { wasm: string; glue: string };
  /** The first is the default. */
  qualities: SiteModel[];
  recognizer: SiteModel | null;
  detector: Detector;
  template: [number, number][];
  template_size: number;
  /** The smallest side of an aligned crop in pixels. */
  min_crop_size: number;
  /** The pseudoinverse of a mean head, 3 x 5, for the pose. */
  head_fit: number[][];
  reasons: ReasonRules;
  /** Of qualities below the cutoffs, between them, and above. */
  verdicts: [string, string, string];
  not_a_face: string;
  /** Shares of good faces that are usable, and good: the cutoffs of the verdicts. */
  usable: number;
  good: number;
  default_fmr: number;
  /** Two embeddings that are more similar are of copies of one image. */
  identical: number;
  max_bytes: number;
  max_pixels: number;
  columns: string[];
}

/** YuNet, and the search of a photo with it; see `facerts.detection.photo_search`. */
export interface Detector {
  name: string;
  file: string;
  sha256: string;
  threshold: number;
  size: number;
  max_iou: number;
  sure: number;
  strides: number[];
  max_candidates: number;
  share: number;
  usual_aspect: number;
  max_pixels: number;
  min_size: number;
  step: number;
  largest_face: number;
  max_pass_pixels: number;
  tile: number;
  max_inside: number;
  edge: number;
  look: number;
  surroundings: number;
}

/** See `facerts.scoring.reasons`. */
export interface ReasonRules {
  /** In the order in which faces list them. */
  order: string[];
  looking_like_none: string[];
  max_outside: number;
  min_eye_distance: number;
  max_yaw: number;
  min_luminance: number;
  max_luminance: number;
  min_sharpness: number;
  max_noise: number;
  /** Left, top, right and bottom of the face in an aligned crop. */
  face_region: [number, number, number, number];
  floor: number;
}
