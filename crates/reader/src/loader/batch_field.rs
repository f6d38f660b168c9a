//! What a column of a batch holds, and how its token ids are laid out.

use dsconvert_dataset::manifest::Alignment;
use dsconvert_dataset::schema::{ArrayType, FieldType};

/// A column of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchField {
    /// Decoded images, with the index of their field.
    Image(usize),
    /// Decoded masks, with the index of their field. They have the same view as the images of their records.
    Mask(usize),
    /// Boxes, or what each box has, with the index and type of the field. They have the same view as the images of their
    /// records.
    PerBox(usize, FieldType),
    /// The class, or [`IGNORE_LABEL`](dsconvert_dataset::packing::IGNORE_LABEL), with the index of its field.
    Label(usize),
    /// Whether a row holds a record that is not blank.
    Valid,
    /// The number of the source of each record.
    Source,
    InputIds,
    AttentionMask,
    Labels,
    /// 1 where there is a label.
    LossMask,
    /// Which tokens are to be trained on.
    AssistantMasks,
    /// The same, of preference data, in the type of token ids.
    CompletionMask,
    Lengths,
    PositionIds,
    CuSeqlens,
    /// The length of the longest document of the batch.
    MaxLength,
    /// The length of the longest document of each row.
    MaxSeqlen,
    /// The top left corner of the crop of bucketed images, mirrored with them: the indices of its field and of those of the
    /// resized size and of the size of the bucket.
    CropTopLeft {
        corner: usize,
        resized: usize,
        target: usize,
    },
    /// A field of a companion with one number per token.
    PerToken {
        index: usize,
        array: ArrayType,
        aligned: Alignment,
    },
    /// A field of a companion, or `twin` where the image is mirrored.
    Mirrored {
        index: usize,
        twin: usize,
        ty: FieldType,
    },
    /// A field as it is stored, with its index.
    Stored(usize, FieldType),
    /// 1 for the tokens of images.
    MmTokenTypeIds,
    /// Positions of tokens in time, and in the rows and columns of images.
    RotaryPositions,
    /// The patches of the images of chats.
    PixelValues,
    /// The grids of the images of chats.
    ImageGrids,
    /// False: with a cache of keys and values, models of transformers attend to the other documents of a row.
    UseCache,
    /// A field of the documents of packed rows, one after another, with its index.
    Joined(usize, FieldType),
    /// Arrays with one open axis, padded to the longest of the batch, with the index of their field.
    Padded {
        index: usize,
        array: ArrayType,
        axis: usize,
    },
    /// The size of that axis of each array.
    PaddedLengths {
        index: usize,
        axis: usize,
    },
    /// Whether the field of the previous column, with its index, is not null.
    StoredValid(usize),
}

impl BatchField {
    /// Returns whether the column needs files to be decoded.
    pub(super) fn is_decoded(self) -> bool {
        matches!(self, BatchField::Image(_) | BatchField::Mask(_) | BatchField::PixelValues)
    }
}

/// How the token ids of a batch are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenLayout {
    /// One row per record, padded to one width.
    Padded,
    /// Records one after another, with nothing in between.
    Flat,
    /// Rows of one length, each of several documents.
    Packed,
}
