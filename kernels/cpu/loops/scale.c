/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Squeeze-and-excite's product: a factor for each channel of each item. With AVX-512 the activations have channels last and are
 * f32, bf16, or whole numbers where those are read; with AVX2 they are f32, in blocks of 8 channels, or with channels last
 * between convolutions of whole numbers, and the result whole numbers where those are read.
 */
#include <string.h>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/loops/portion.h"
#include "kernels/cpu/loops/product.h"
#include "kernels/cpu/program.h"
#include "kernels/team.h"

enum { SHARED_LEAST = 16384 }; /* elements that are worth a team */

CPU_INLINE __m512
from_bf16(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

/* To the nearest, halves to even; NaN stays NaN. */
CPU_INLINE __m256i
to_bf16(__m512 x)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_epi32(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __m512i quiet = _mm512_or_epi32(bits, _mm512_set1_epi32(1 << 22)); /* rounding could make an infinity of NaN */
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, is_nan, quiet), 16));
}

/* To the nearest, halves to even; what lies beyond becomes the least or the most, and NaN the least. */
CPU_INLINE __m128i
to_whole(__m512 x, float least, float most)
{
    const __m512 held = _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(least)), _mm512_set1_ps(most));
    return _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(held));
}

CPU_INLINE __m512
load(const unsigned char *from, const dnnl_data_type_t type)
{
    return type == dnnl_bf16 ? from_bf16(_mm256_loadu_si256((const __m256i *)(const void *)from))
                             : _mm512_loadu_ps((const float *)(const void *)from);
}

CPU_INLINE void
store(unsigned char *to, const dnnl_data_type_t type, __m512 x)
{
    switch (type) {
    case dnnl_bf16: _mm256_storeu_si256((__m256i *)(void *)to, to_bf16(x)); break;
    case dnnl_s8: _mm_storeu_si128((__m128i *)(void *)to, to_whole(x, -128, 127)); break;
    case dnnl_u8: _mm_storeu_si128((__m128i *)(void *)to, to_whole(x, 0, 255)); break;
    default: _mm512_storeu_ps((float *)(void *)to, x);
    }
}

CPU_INLINE size_t
bytes_of(const dnnl_data_type_t type)
{
    return type == dnnl_f32 ? 4 : type == dnnl_bf16 ? 2 : 1;
}

/* args: x, factors, y, which may be x; outer items of dims[0] rows of dims[1] pixels of `inner` channels. */
CPU_INLINE void
scale_all(const struct cpu_call *call, const struct cpu_portion *portion, const dnnl_data_type_t x_type,
          const dnnl_data_type_t y_type)
{
    const size_t width = (size_t)call->step->dims[1], of_item = (size_t)call->step->dims[0] * width;
    const size_t channels = call->step->inner, end = (size_t)portion->last_vector * CPU_LANES;
    const size_t last = end < channels ? end : channels;
    const size_t x_bytes = bytes_of(x_type), y_bytes = bytes_of(y_type);
    const struct cpu_tensor *result = &call->program->tensors[call->step->args[2].tensor];
    const __m512 unit = _mm512_set1_ps(1 / result->scale),
                 zero = _mm512_set1_ps((float)result->zero);
    const unsigned char *x = call->pointers[0];
    const float *factors = call->pointers[1];
    unsigned char *y = call->pointers[2];

    for (size_t p = (size_t)portion->first_row * width; p < (size_t)portion->last_row * width; p++) {
        const unsigned char *from = x + p * channels * x_bytes;
        const float *by = factors + p / of_item * channels;
        unsigned char *to = y + p * channels * y_bytes;
        size_t c = (size_t)portion->first_vector * CPU_LANES;
        for (; c + CPU_LANES <= last; c += CPU_LANES) {
            __m512 product = _mm512_mul_ps(load(from + c * x_bytes, x_type), _mm512_loadu_ps(by + c));
            if (y_type == dnnl_s8 || y_type == dnnl_u8) {
                product = _mm512_fmadd_ps(product, unit, zero);
            }
            store(to + c * y_bytes, y_type, product);
        }
        if (c < last) {
            unsigned char some[CPU_LANES * sizeof(float)] = {0};
            const __mmask16 there = (__mmask16)((1u << (last - c)) - 1);
            memcpy(some, from + c * x_bytes, (last - c) * x_bytes);
            const __m512 product = _mm512_mul_ps(load(some, x_type), _mm512_maskz_loadu_ps(there, by + c));
            store(some, y_type, _mm512_fmadd_ps(product, unit, zero));
            memcpy(to + c * y_bytes, some, (last - c) * y_bytes);
        }
    }
}

CPU_AVX512 static void
scale_portion(const struct cpu_call *call, const struct cpu_portion *portion)
{
    const bool narrow = call->program->tensors[call->step->args[0].tensor].md.data_type == dnnl_bf16;

    switch (call->program->tensors[call->step->args[2].tensor].md.data_type) {
    case dnnl_bf16: scale_all(call, portion, dnnl_bf16, dnnl_bf16); break;
    case dnnl_s8: narrow ? scale_all(call, portion, dnnl_bf16, dnnl_s8) : scale_all(call, portion, dnnl_f32, dnnl_s8); break;
    case dnnl_u8: narrow ? scale_all(call, portion, dnnl_bf16, dnnl_u8) : scale_all(call, portion, dnnl_f32, dnnl_u8); break;
    default: scale_all(call, portion, dnnl_f32, dnnl_f32);
    }
}

static void
scale_share(void *context, uint32_t member, uint32_t size)
{
    const struct cpu_call *call = context;
    const struct cpu_step *step = call->step;

    (void)size;
    if (member < call->program->threads) {
        const struct cpu_portion mine =
            cpu_portion_of((int64_t)step->outer * step->dims[0], (int64_t)(step->inner + CPU_LANES - 1) / CPU_LANES, member,
                           call->program->threads);
        scale_portion(call, &mine);
    }
}

static enum leat_status
scale(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    const int64_t rows = (int64_t)step->outer * step->dims[0], vectors = (int64_t)(step->inner + CPU_LANES - 1) / CPU_LANES;

    if (call->program->threads > 1 && (size_t)(rows * step->dims[1]) * step->inner >= SHARED_LEAST) {
        leat_team_run(call->team, scale_share, (void *)(uintptr_t)call);
    } else {
        scale_portion(call, &(struct cpu_portion){0, rows, 0, vectors, true});
    }
    return LEAT_OK;
}

/* args as above; blocks of dims[0] * dims[1] pixels of CPU_HALF channels. */
CPU_AVX2 static void
scale_blocks_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const size_t floats = (size_t)(call->step->dims[0] * call->step->dims[1]) * CPU_HALF;
    const float *x = call->pointers[0], *factors = call->pointers[1];
    float *y = call->pointers[2];

    for (size_t block = begin; block < end; block++) {
        const __m256 by = _mm256_loadu_ps(factors + block * CPU_HALF);
        for (size_t i = block * floats; i < (block + 1) * floats; i += CPU_HALF) {
            _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), by));
        }
    }
}

static enum leat_status
scale_blocks(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;
    const size_t floats = (size_t)(step->dims[0] * step->dims[1]) * CPU_HALF;

    cpu_share(call, scale_blocks_part, step->outer * step->inner / CPU_HALF, SHARED_LEAST / floats + 1);
    return LEAT_OK;
}

/* args as above; pixels of `inner` channels, which are whole vectors. */
CPU_AVX2 static void
scale_pixels_part(const struct cpu_call *call, size_t begin, size_t end)
{
    const struct cpu_tensor *result = &call->program->tensors[call->step->args[2].tensor];
    const size_t channels = call->step->inner, of_item = (size_t)(call->step->dims[0] * call->step->dims[1]);
    const bool whole = result->md.data_type != dnnl_f32, is_signed = result->md.data_type == dnnl_s8;
    const __m256 unit = _mm256_set1_ps(1 / result->scale), zero = _mm256_set1_ps((float)result->zero);
    const __m256 least = _mm256_set1_ps(is_signed ? -128 : 0), most = _mm256_set1_ps(is_signed ? 127 : 255);
    const float *x = call->pointers[0], *factors = call->pointers[1];

    for (size_t p = begin; p < end; p++) {
        const float *by = factors + p / of_item * channels;
        for (size_t c = 0; c < channels; c += CPU_HALF) {
            const __m256 product = _mm256_mul_ps(_mm256_loadu_ps(x + p * channels + c), _mm256_loadu_ps(by + c));
            if (!whole) {
                _mm256_storeu_ps((float *)call->pointers[2] + p * channels + c, product);
                continue;
            }
            const __m256 held = _mm256_min_ps(_mm256_max_ps(_mm256_fmadd_ps(product, unit, zero), least), most);
            const __m256i numbers = _mm256_cvtps_epi32(held);
            const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(numbers), _mm256_extracti128_si256(numbers, 1));
            const __m128i bytes = is_signed ? _mm_packs_epi16(halves, halves) : _mm_packus_epi16(halves, halves);
            _mm_storel_epi64((__m128i *)(void *)((unsigned char *)call->pointers[2] + p * channels + c), bytes);
        }
    }
}

static enum leat_status
scale_pixels(const struct cpu_call *call)
{
    const struct cpu_step *step = call->step;

    cpu_share(call, scale_pixels_part, step->outer * (size_t)(step->dims[0] * step->dims[1]), SHARED_LEAST / step->inner + 1);
    return LEAT_OK;
}

typedef enum leat_status (*kernel)(const struct cpu_call *call);

/* NULL where there is none for that layout. */
static kernel
kernel_for(const dnnl_memory_desc_t *md)
{
    dnnl_memory_desc_t as_f32 = *md;

    as_f32.data_type = dnnl_f32;
    if (cpu_has_avx512() && (md->data_type == dnnl_f32 || md->data_type == dnnl_bf16) && cpu_has_channels_last(&as_f32)) {
        return scale;
    }
    if (cpu_has_avx2() && md->dims[1] % CPU_HALF == 0 && cpu_has_channels_last(md)) {
        return scale_pixels;
    }
    return cpu_has_avx2() && cpu_has_channel_blocks(md) ? scale_blocks : NULL;
}

enum leat_status
cpu_lower_scale(struct cpu_builder *b, uint32_t value, uint32_t factors)
{
    const struct leat_value *x = &b->graph->values[value], *by = &b->graph->values[factors];
    const bool whole = b->wants_whole[b->node->outputs[0]];
    struct cpu_arg args[3] = {{0, 0}};
    struct cpu_step *step;
    struct cpu_stored stored = {.scale = 1};

    if (x->rank != 4 || by->rank != 4 || by->dims[0] != x->dims[0] || by->dims[1] != x->dims[1] || by->dims[2] != 1 ||
        by->dims[3] != 1) {
        return LEAT_AGAIN;
    }
    enum leat_status status = cpu_best(b, value, &args[0].tensor);
    if (status != LEAT_OK) {
        return status;
    }
    dnnl_memory_desc_t md = b->program->tensors[args[0].tensor].md;
    const kernel run = kernel_for(&md);
    if (run == NULL || (whole && run == scale_blocks)) {
        return LEAT_AGAIN;
    }
    if (whole) {
        stored = cpu_stored_as(b, b->node->outputs[0]);
        md.data_type = stored.type;
    }
    status = cpu_plain(b, factors, &args[1].tensor);
    if (status == LEAT_OK) {
        status = !whole && cpu_may_overwrite(b, value, args[0].tensor)
                     ? cpu_view(b, args[0].tensor, &md, &args[2].tensor)
                     : cpu_new_tensor(b, &md, dnnl_memory_desc_get_size(&md), &args[2].tensor);
    }
    if (status == LEAT_OK) {
        b->program->tensors[args[2].tensor].scale = stored.scale;
        b->program->tensors[args[2].tensor].zero = stored.zero;
        status = cpu_add_kernel(b, run, args, 3, &step);
    }
    if (status == LEAT_OK) {
        step->outer = (size_t)x->dims[0];
        step->inner = (size_t)x->dims[1];
        memcpy(step->dims, x->dims + 2, 2 * sizeof(*step->dims));
        if (whole) {
            cpu_set_whole(b, args[2].tensor);
        } else {
            cpu_set_output(b, 0, args[2].tensor);
        }
    }
    return status;
}
