// The file of decoded images that image_cache.h keeps: everything in it, and where.
//
//   header    16 bytes
//   pixels    one run of bytes per example, in any order, without gaps
//   table     num_examples entries of 40 bytes, in the order of the data set
//   boxes     num_boxes entries of 28 bytes, those of one example one after another
//   footer    88 bytes, the last of the file
//
// All numbers are little-endian; there is no padding. The footer stands at the end because sizes
// are known only when the last image has been decoded, and files are only ever appended to.
//
// What is checked when:
//   opening   both magics and versions, the checksum of header and footer, the size of the file
//             against the footer, the checksum of table and boxes, and that every entry points into
//             the file. Time grows with the table, not with the pixels.
//   reading   the checksum of the one image.
//
// A file is written under another name, synced and renamed: under its own name it is whole, or the
// disk has damaged it. It is never changed afterwards; a new one takes its name while those who
// have the old one open keep that.
//
// The key says which data set it was made of (ImageCacheKey). A reader refuses any other version: a
// cache is rebuilt, not converted.
#ifndef PUSHPULL_WORKER_DATA_IMAGE_CACHE_FORMAT_H_
#define PUSHPULL_WORKER_DATA_IMAGE_CACHE_FORMAT_H_

#include <cstddef>
#include <cstdint>

namespace pushpull {

inline constexpr char kImageCacheMagic[8] = {'P', 'P', 'I', 'M', 'A', 'G', 'E', 'S'};
inline constexpr uint32_t kImageCacheVersion = 1;
inline constexpr size_t kImageCacheKeyBytes = 32;
// Of either side: keeps height * width * channels far from overflow.
inline constexpr uint32_t kImageCacheMaxSide = 1u << 24;

struct ImageCacheHeader {
  char magic[8];
  uint32_t version;
  uint32_t reserved;  // 0
};

struct ImageCacheEntry {
  uint64_t pixels_offset;  // from the beginning of the file
  uint64_t first_box;      // index into the boxes
  uint32_t num_boxes;
  uint32_t height;
  uint32_t width;
  uint32_t channels;  // 1 or 3
  uint32_t label;
  uint32_t pixels_crc;  // CRC-32C of height * width * channels bytes
};

struct ImageCacheBox {
  float ymin;
  float xmin;
  float ymax;
  float xmax;
  float weight;
  uint32_t label;
  uint32_t flags;
};
inline constexpr uint32_t kImageCacheBoxDifficult = 1;
inline constexpr uint32_t kImageCacheBoxIsCrowd = 2;

struct ImageCacheFooter {
  uint64_t num_examples;
  uint64_t num_boxes;
  uint64_t table_offset;          // where the pixels end
  char key[kImageCacheKeyBytes];  // hex digits
  uint32_t num_classes;
  uint32_t max_side;  // 0: images as decoded
  uint32_t version;
  uint32_t table_crc;  // CRC-32C of table and boxes
  char magic[8];
  uint32_t reserved;    // 0
  uint32_t footer_crc;  // CRC-32C of the header and of the footer up to here
};

static_assert(sizeof(ImageCacheHeader) == 16);
static_assert(sizeof(ImageCacheEntry) == 40);
static_assert(sizeof(ImageCacheBox) == 28);
static_assert(sizeof(ImageCacheFooter) == 88);
static_assert(offsetof(ImageCacheFooter, footer_crc) == 84);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IMAGE_CACHE_FORMAT_H_
