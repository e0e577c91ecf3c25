/** What goes in and comes out, with the names that `facerts score` and the service use. */
/** The description of a model, as far as it is read here; `facerts.onnx.contract.Description` has all of it. */
export interface Description {
    name: string;
    method: string;
    input: {
        name: string;
        size: [number, number];
        layout: "NCHW" | "NHWC";
        color: "RGB" | "BGR";
        batch: number | null;
        mean: [number, number, number];
        std: [number, number, number];
    };
    /** The model's tensor for each role. */
    outputs: Record<string, string>;
    normalize_embedding: boolean;
    /** "output:TENSOR", "norm" or "none". */
    quality: string;
    polarity: "higher_is_better" | "lower_is_better";
    /** Quality thresholds by the share of good faces that they keep. */
    thresholds: Record<string, {
        quality: number;
    }>;
    calibration: {
        /** Of the quality, at 0, 1, …, 100%. */
        quantiles: number[];
        matching: Matching | null;
    } | null;
    training_data: string;
    license: string;
    terms: string;
}
/** Match thresholds by false match rate. */
export interface Matching {
    data: string;
    images: number;
    thresholds: Record<string, {
        similarity: number;
        fnmr: number;
        /** The false non-match rate among pairs of faces above a quality threshold, by the share that it keeps. */
        kept: Record<string, {
            fnmr: number | null;
        }>;
    }>;
}
/** A model: the quality, or the recognizer. */
export interface ModelPart {
    name: string;
    sha256: string;
    description: Description;
}
/** What scores, and by which thresholds. */
export interface ModelInfo {
    quality: ModelPart | null;
    recognizer: ModelPart | null;
    /** Kind of the detector; null if every image is an aligned crop. */
    detector: string | null;
    /** Faces are accepted from this quality on where a request sets nothing; null for no decision. */
    min_quality: number | null;
    /** The false match rate of comparisons where a request sets nothing; null if faces cannot be compared. */
    fmr: number | null;
    /** Eyes, nose and corners of the mouth in an aligned crop of `template_size` pixels. */
    template: [number, number][];
    template_size: number;
    /** The columns of `facerts score`. */
    columns: string[];
}
/** A face; an aligned crop has no box, points, rotation, det_score and pose. */
export interface Face {
    /** Left, top, right, bottom in pixels of the upright image. */
    box: [number, number, number, number] | null;
    /** Eyes, nose and corners of the mouth, from left to right in the upright face. */
    points: [number, number][] | null;
    /** 0, 90, 180 or 270: the degrees by which the photo has to be turned clockwise for an upright face. */
    rotation: number | null;
    det_score: number | null;
    /** Yaw, pitch and roll in degrees. */
    pose: [number, number, number] | null;
    /** The percentage, 0 to 100, of the calibration faces with lower quality. */
    percentile: number | null;
    /** Higher is better; comparable only within one model. */
    quality: number | null;
    uncertainty: number | null;
    /** Null if there is no threshold. */
    accepted: boolean | null;
    /** "good", "usable", "poor" or "not a face". */
    verdict: string | null;
    /** What makes the face poor, most important first, and why it was rejected. */
    reasons: string[];
    /** Of unit length; null unless asked for. */
    embedding: number[] | null;
}
/** The faces of an image, largest first, or why there are none. */
export interface ImageResult {
    name: string | null;
    width: number | null;
    height: number | null;
    /** Number of faces found, including those that are not scored. */
    found: number;
    error: string | null;
    faces: Face[];
}
/** Whether two images show one person. */
export interface Verification {
    decision: "same" | "different" | "inconclusive";
    similarity: number;
    /** Why the decision is inconclusive. */
    reason: string | null;
    note: string | null;
    fmr: number | null;
    /** The similarity at or above which two faces match. */
    threshold: number;
    fnmr: number | null;
    images: [ImageResult, ImageResult];
}
/** Which faces are accepted; by default those above the threshold that keeps 95% of good faces. */
export interface Threshold {
    /** Accept faces above the threshold that keeps this share of good faces; "none" for no decision. */
    keep?: number | "none" | undefined;
    /** Accept faces with at least this quality. */
    min_quality?: number | undefined;
}
/** How an image is read. */
export interface ScoreOptions extends Threshold {
    /** Only the largest face. */
    largest?: boolean | undefined;
    /** Whether the image is an aligned crop; by default if it has 112 x 112 pixels. */
    aligned?: boolean | undefined;
    /** Also give the embedding of each face, which needs a recognizer. */
    embeddings?: boolean | undefined;
    /** The image is a frame of a video: it is searched in bounded time, and not turned. */
    frame?: boolean | undefined;
    signal?: AbortSignal | undefined;
}
/** How two images are compared. */
export interface VerifyOptions extends Threshold {
    /** The false match rate, one of those that the recognizer was calibrated for. */
    fmr?: number | undefined;
    /** Instead, the similarity at or above which faces match. */
    threshold?: number | undefined;
    aligned?: boolean | undefined;
    signal?: AbortSignal | undefined;
}
/** An encoded image, or its pixels. */
export type ImageSource = Blob | ImageBitmap | ImageData;
/** What reads images: this browser, or a service. */
export interface Scorer {
    readonly model: ModelInfo;
    /** The faces of an image with its size; an image that cannot be read gives an `error`. */
    read(image: ImageSource, options?: ScoreOptions): Promise<ImageResult>;
    /** Whether two images show the same person: of an image with several faces the largest is compared. */
    verify(first: ImageSource, second: ImageSource, options?: VerifyOptions): Promise<Verification>;
}

/** What is loaded, and from where. */
export interface LoadOptions {
    /** The folder that `facerts web` wrote; by default that of this module. */
    base?: string | URL | undefined;
    /** Name of the quality, one of `facerts.json`; by default its first. */
    quality?: string | undefined;
    /** Threads per forward pass, at most those of the machine; more than one only where the page is cross-origin isolated. */
    threads?: number | undefined;
}
/** Reads images in a worker, so that the page stays alive: one after another, in the order in which they were given. */
export declare class Facerts implements Scorer {
    readonly model: ModelInfo;
    private readonly connection;
    /** The faces of an image, largest first; throws if the image cannot be read. */
    score(image: ImageSource, options?: ScoreOptions): Promise<Face[]>;
    read(image: ImageSource, { signal, ...options }?: ScoreOptions): Promise<ImageResult>;
    verify(first: ImageSource, second: ImageSource, { signal, ...options }?: VerifyOptions): Promise<Verification>;
    /** End the worker; what is still being read is rejected. */
    close(): void;
}
/** Load the detector and the quality; the recognizer follows when two faces are first compared. */
export declare function load({ base, quality, threads }?: LoadOptions): Promise<Facerts>;
