"""Endings of files, in small letters: those of images, of DICOM, and of what lies beside images and is none."""

from __future__ import annotations

DICOM_ENDINGS = frozenset({".dcm", ".dicom", ".ima"})

# fmt: off
IMAGE_ENDINGS = DICOM_ENDINGS | frozenset(
    {
        ".apng", ".arw", ".avif", ".avifs", ".bmp", ".cr2", ".cr3", ".dds", ".dib", ".dng", ".exr", ".gif",
        ".heic", ".heif", ".icns", ".ico", ".j2c", ".j2k", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpf", ".jpg",
        ".jpx", ".jxl", ".jxr", ".nef", ".orf", ".pbm", ".pcx", ".pgm", ".png", ".pnm", ".ppm", ".psd", ".qoi",
        ".raf", ".ras", ".rw2", ".sgi", ".svs", ".tga", ".tif", ".tiff", ".webp", ".xbm", ".xpm",
    }
)
"""Files that are meant as images, whether they can be read or not."""

OTHER_ENDINGS = frozenset(
    {
        ".7z", ".bak", ".bib", ".c", ".cfg", ".conf", ".cpp", ".crdownload", ".csv", ".dat", ".db", ".doc",
        ".docx", ".download", ".filepart", ".geojson", ".gz", ".h5", ".hdf5", ".html", ".ini", ".ipynb", ".js",
        ".json", ".jsonl", ".lnk", ".lock", ".log", ".m", ".mat", ".md", ".mp4", ".npy", ".npz", ".ods", ".old",
        ".orig", ".parquet", ".part", ".partial", ".pdf", ".pickle", ".pkl", ".pt", ".pth", ".py", ".rar",
        ".rtf", ".sh", ".sql", ".sqlite", ".swp", ".tar", ".tex", ".tmp", ".toml", ".tsv", ".txt", ".url",
        ".xls", ".xlsx", ".xml", ".yaml", ".yml", ".zip",
    }
)
"""Files that are never opened as images."""
FORMATS = frozenset(
    {
        "AVIF", "BMP", "DDS", "DIB", "GIF", "HEIF", "ICNS", "ICO", "JPEG", "JPEG2000", "JXL", "MPO", "PCX", "PNG",
        "PPM", "PSD", "QOI", "SGI", "SUN", "TGA", "TIFF", "WEBP", "XPM",
    }
)
"""Kinds that Pillow reads as they are meant: of FITS it leaves out the scale, and EPS it has another program draw."""
# fmt: on

_FIRST_BYTES = (
    b"\xff\xd8\xff",  # JPEG
    b"\x89PNG",
    b"GIF8",
    b"BM",
    b"II*\0",  # TIFF
    b"MM\0*",
    b"II+\0",
    b"MM\0+",
    b"P1",  # PNM
    b"P2",
    b"P3",
    b"P4",
    b"P5",
    b"P6",
    b"\0\0\0\x0cjP  ",  # JPEG 2000
    b"\xff\x4f\xff\x51",
    b"8BPS",
    b"\0\0\0\x0cJXL ",
    b"\xff\x0a",
)
NUM_BYTES = 132
"""Length of the start of a file that `begins_as_image` looks at."""


def begins_as_image(head: bytes) -> bool:
    """Whether a file that begins so is an image, by its first bytes."""
    return (
        head.startswith(_FIRST_BYTES)
        or begins_as_dicom(head)
        or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")
        or (head[4:8] == b"ftyp" and head[8:12] in (b"avif", b"avis", b"heic", b"heix", b"mif1", b"msf1"))
    )


def begins_as_dicom(head: bytes) -> bool:
    """Whether a file that begins so is of DICOM: 128 bytes of anything, then its mark."""
    return head[128:132] == b"DICM"
