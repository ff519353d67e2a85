"""The families of the test matrix: what t2iprobe/models/FAMILIES.md lists, and what the tests go through."""

NAMED = {
    "sd15": ("Stable Diffusion 1.x", "StableDiffusionPipeline"),
    "sd15_safety": ("… with safety checker", "StableDiffusionPipeline"),
    "sdxl": ("SDXL", "StableDiffusionXLPipeline"),
    "sd3": ("Stable Diffusion 3", "StableDiffusion3Pipeline"),
    "sd3_no_t5": ("… without T5", "StableDiffusion3Pipeline"),
    "flux": ("FLUX.1 dev", "FluxPipeline"),
    "pixart_sigma": ("PixArt-Sigma", "PixArtSigmaPipeline"),
    "sana": ("Sana", "SanaPipeline"),
    "qwenimage": ("Qwen-Image", "QwenImagePipeline"),
    "zimage": ("Z-Image", "ZImagePipeline"),
    "kandinsky22": ("Kandinsky 2.2", "KandinskyV22CombinedPipeline"),
    "deepfloyd_if": ("DeepFloyd IF", "IFPipeline"),
    "stable_cascade": ("Stable Cascade", "StableCascadeCombinedPipeline"),
}
"""Families that every change is tried on, from inspect to a run: (name, pipeline class)."""

MADE_ON = {
    "auraflow": ("AuraFlow", "AuraFlowPipeline"),
    "lumina2": ("Lumina 2", "Lumina2Pipeline"),
    "chroma": ("Chroma", "ChromaPipeline"),
    "cogview4": ("CogView4", "CogView4Pipeline"),
    "hunyuandit": ("HunyuanDiT", "HunyuanDiTPipeline"),
    "lcm": ("Latent Consistency", "LatentConsistencyModelPipeline"),
}

UNSEEN = {
    "sd2": ("Stable Diffusion 2", "StableDiffusionPipeline"),
    "sd35": ("Stable Diffusion 3.5, skip layers", "StableDiffusion3Pipeline"),
    "sd3_pag": ("Stable Diffusion 3 PAG", "StableDiffusion3PAGPipeline"),
    "sdxl_pag": ("SDXL PAG", "StableDiffusionXLPAGPipeline"),
    "sag": ("Self-attention guidance", "StableDiffusionSAGPipeline"),
    "semantic": ("Semantic guidance", "SemanticStableDiffusionPipeline"),
    "ldm": ("Latent Diffusion", "LDMTextToImagePipeline"),
    "flux_schnell": ("FLUX.1 schnell", "FluxPipeline"),
    "flux_kontext": ("FLUX.1 Kontext", "FluxKontextPipeline"),
    "flux2": ("FLUX.2", "Flux2Pipeline"),
    "flux2_klein": ("FLUX.2 klein", "Flux2KleinPipeline"),
    "pixart_alpha": ("PixArt-alpha", "PixArtAlphaPipeline"),
    "pixart_pag": ("PixArt-Sigma PAG", "PixArtSigmaPAGPipeline"),
    "sana_pag": ("Sana PAG", "SanaPAGPipeline"),
    "sana_sprint": ("Sana-Sprint", "SanaSprintPipeline"),
    "hunyuandit_pag": ("HunyuanDiT PAG", "HunyuanDiTPAGPipeline"),
    "hunyuanimage": ("HunyuanImage 2.1", "HunyuanImagePipeline"),
    "hidream": ("HiDream-I1", "HiDreamImagePipeline"),
    "cogview3": ("CogView3+", "CogView3PlusPipeline"),
    "lumina": ("Lumina-Next", "LuminaPipeline"),
    "qwenimage21": ("Qwen-Image 2.1", "QwenImage21Pipeline"),
    "nucleus": ("Nucleus-Image", "NucleusMoEImagePipeline"),
    "omnigen": ("OmniGen", "OmniGenPipeline"),
    "bria": ("Bria 3", "BriaPipeline"),
    "bria_fibo": ("Bria FIBO", "BriaFiboPipeline"),
    "ovis": ("Ovis-Image", "OvisImagePipeline"),
    "longcat": ("LongCat-Image", "LongCatImagePipeline"),
    "ernie": ("ERNIE-Image", "ErnieImagePipeline"),
    "krea2": ("Krea 2", "Krea2Pipeline"),
    "prx": ("PRX", "PRXPipeline"),
    "kandinsky21": ("Kandinsky 2.1", "KandinskyCombinedPipeline"),
    "kandinsky3": ("Kandinsky 3", "Kandinsky3Pipeline"),
    "kandinsky5": ("Kandinsky 5", "Kandinsky5T2IPipeline"),
    "wuerstchen": ("Würstchen", "WuerstchenCombinedPipeline"),
    "unclip": ("unCLIP", "UnCLIPPipeline"),
    "amused": ("aMUSEd", "AmusedPipeline"),
}
"""Families added after the code was written, to see whether it finds its way."""

REST = {
    "sd15_pag": ("Stable Diffusion 1.x PAG", "StableDiffusionPAGPipeline"),
    "safe": ("Safe Stable Diffusion", "StableDiffusionPipelineSafe"),
    "paradigms": ("ParaDiGMS", "StableDiffusionParadigmsPipeline"),
    "model_editing": ("TIME model editing", "StableDiffusionModelEditingPipeline"),
    "panorama": ("MultiDiffusion panorama", "StableDiffusionPanoramaPipeline"),
    "gligen": ("GLIGEN, one box", "StableDiffusionGLIGENPipeline"),
    "alt_diffusion": ("AltDiffusion", "AltDiffusionPipeline"),
    "versatile": ("Versatile Diffusion", "VersatileDiffusionTextToImagePipeline"),
    "vq_diffusion": ("VQ-Diffusion", "VQDiffusionPipeline"),
    "stable_unclip": ("Stable unCLIP", "StableUnCLIPPipeline"),
    "unidiffuser": ("UniDiffuser, guidance off", "UniDiffuserPipeline"),
    "kolors": ("Kolors", "KolorsPipeline"),
    "kolors_pag": ("Kolors PAG", "KolorsPAGPipeline"),
    "cosmos2": ("Cosmos-Predict2", "Cosmos2TextToImagePipeline"),
    "ideogram4": ("Ideogram 4", "Ideogram4Pipeline"),
    "dreamlite": ("DreamLite", "DreamLitePipeline"),
    "dreamlite_mobile": ("DreamLite Mobile", "DreamLiteMobilePipeline"),
    "bria_fibo2": ("Bria FIBO 2", "BriaFibo2Pipeline"),
    "glm_image": ("GLM-Image", "GlmImagePipeline"),
    "zimage_omni": ("Z-Image Omni", "ZImageOmniPipeline"),
    "prx_pixel": ("PRX Pixel", "PRXPixelPipeline"),
    "joyimage": ("JoyImage", "JoyImageEditPipeline"),
    "joyimage_plus": ("JoyImage Plus", "JoyImageEditPlusPipeline"),
    "flux2_klein_kv": ("FLUX.2 klein KV", "Flux2KleinKVPipeline"),
}
"""What else diffusers has that makes an image of a text."""

ALL = NAMED | MADE_ON | UNSEEN | REST

SLOW = ("kandinsky5",)
"""Families whose pipeline has thousands of image tokens however small the model is."""

NO_IMAGE_OF_A_TEXT = {
    "BriaFiboEditPipeline": "edits an image",
    "HunyuanImageRefinerPipeline": "refines an image",
    "IFSuperResolutionPipeline": "enlarges an image",
    "QwenImageEditPipeline": "edits an image",
    "QwenImageEditPlusPipeline": "edits images",
    "ShapEPipeline": "makes views of a solid",
    "StableDiffusionDiffEditPipeline": "edits the latents of an image behind a mask",
    "StableDiffusionGLIGENTextImagePipeline": "needs images of the things in its boxes",
    "StableDiffusionPix2PixZeroPipeline": "needs embeddings of what to edit",
    "StableDiffusionXLInstructPix2PixPipeline": "edits an image",
    "StableUnCLIPImg2ImgPipeline": "varies an image",
    "WuerstchenPriorPipeline": "gives an embedding",
    "OnnxStableDiffusionPipeline": "has no torch modules to read",
    "StableDiffusionOnnxPipeline": "has no torch modules to read",
}
"""Pipelines whose signature says nothing against them and that make no image of a text alone."""
